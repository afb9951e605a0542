(() => {
  "use strict";
  const form = document.querySelector("form.find");
  const box = form.querySelector("input");
  const told = form.querySelector("output");
  const rows = [...document.querySelectorAll("[data-team]")];
  const folds = [...document.querySelectorAll("main details:not(.twin)")].map((fold) => [fold, fold.open]);
  const words = JSON.parse(document.getElementById("team-words").textContent);
  const total = Object.keys(words).length;
  const apply = () => {
    const asked = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = new Set(Object.keys(words).filter((team) => asked.every((word) => words[team].includes(word))));
    const all = asked.length === 0;
    for (const row of rows) row.hidden = !all && !found.has(row.dataset.team);
    for (const [fold, open] of folds) {
      const own = [...fold.querySelectorAll("[data-team]")];
      const some = own.some((row) => !row.hidden);
      fold.open = all ? open : some || found.has(fold.dataset.team);
      const branch = fold.closest("li.group");
      if (branch && branch.firstElementChild === fold) branch.hidden = !all && own.length > 0 && !some;
    }
    for (const row of document.querySelectorAll("[data-of-all]")) row.hidden = !all;
    told.textContent = all ? "" : `${found.size} of ${total} teams`;
  };
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  box.addEventListener("input", apply);
  apply();
})();
