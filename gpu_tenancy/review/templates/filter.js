(() => {
  "use strict";
  const form = document.querySelector("form.find");
  const box = form.querySelector("input");
  const output = form.querySelector("output");
  const rows = [...document.querySelectorAll("[data-team]")];
  const folds = [...document.querySelectorAll("main details:not(.twin)")].map((fold) => [fold, fold.open]);
  const words = JSON.parse(document.getElementById("team-words").textContent);
  const total = Object.keys(words).length;
  const apply = () => {
    const terms = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = new Set(Object.keys(words).filter((team) => terms.every((term) => words[team].includes(term))));
    const all = terms.length === 0;
    for (const row of rows) row.hidden = !all && !matches.has(row.dataset.team);
    for (const [fold, open] of folds) {
      const own = [...fold.querySelectorAll("[data-team]")];
      const visible = own.some((row) => !row.hidden);
      fold.open = all ? open : visible || matches.has(fold.dataset.team);
      const branch = fold.closest("li.group");
      if (branch && branch.firstElementChild === fold) branch.hidden = !all && own.length > 0 && !visible;
    }
    for (const row of document.querySelectorAll("[data-of-all]")) row.hidden = !all;
    output.textContent = all ? "" : `${matches.size} of ${total} teams`;
  };
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  box.addEventListener("input", apply);
  apply();
})();
