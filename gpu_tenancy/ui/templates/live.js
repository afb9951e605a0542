(() => {
  "use strict";
  const status = document.getElementById("status");
  const at = document.getElementById("at");
  const dialog = document.getElementById("why");
  const answer = dialog.querySelector(".answer");
  const form = document.querySelector("form.find");
  const box = form.querySelector("input");
  const output = form.querySelector("output");
  const last = {};
  let asked = "";

  const say = (text, tone) => {
    if (status.textContent !== text) status.textContent = text;
    status.className = tone;
    document.body.classList.toggle("stale", tone === "bad");
  };
  const find = () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [...document.querySelectorAll("tr[data-row]")];
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      if (!row.hidden) shown += 1;
    }
    output.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
  };
  const states = (section) =>
    new Map([...section.querySelectorAll("tr[data-row]")].map((row) => [row.dataset.row, row.querySelector(".state")?.textContent]));
  const put = (id, html) => {
    const section = document.getElementById(id);
    if (!section || last[id] === html) return;
    const first = !(id in last);
    last[id] = html;
    const before = states(section);
    const key = section.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
    const named = (fold) => fold.dataset.fold ?? fold.querySelector("summary .name")?.textContent;
    const folds = new Map([...section.querySelectorAll("details")].map((fold) => [named(fold), fold.open]));
    section.innerHTML = html;
    for (const fold of section.querySelectorAll("details")) fold.open = folds.get(named(fold)) ?? fold.open;
    for (const row of section.querySelectorAll("tr[data-row]"))
      row.classList.toggle("changed", !first && before.get(row.dataset.row) !== row.querySelector(".state")?.textContent);
    if (key) [...section.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key)?.focus({ preventScroll: true });
  };
  const ask = async (button) => {
    asked = button.dataset.key;
    const { namespace, kind, name } = button.dataset;
    answer.textContent = `Reading the cluster about ${name}`;
    if (!dialog.open) dialog.showModal();
    const wanted = asked;
    let html = "";
    try {
      html = await (await fetch(`why?${new URLSearchParams({ namespace, kind, name })}`)).text();
    } catch {
      html = "<h2>tenancy ui does not answer</h2><p>fix: start it again and open its new address</p>";
    }
    if (asked === wanted) answer.innerHTML = html;
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.ask");
    if (button) ask(button);
  });
  dialog.addEventListener("close", () => {
    const button = [...document.querySelectorAll("[data-key]")].find((one) => one.dataset.key === asked);
    asked = "";
    // The browser gives the focus back before this event, unless an update has replaced the button since.
    if (document.activeElement === document.body) button?.focus();
  });
  document.addEventListener("keydown", (event) => {
    if (dialog.open || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/" && document.activeElement !== box) {
      event.preventDefault();
      box.focus();
    } else if (event.key === "Escape" && document.activeElement === box) {
      box.value = "";
      find();
    }
  });
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  box.addEventListener("input", find);

  const source = new EventSource("events");
  source.addEventListener("board", (event) => {
    const board = JSON.parse(event.data);
    for (const [id, html] of Object.entries(board.sections)) put(id, html);
    at.textContent = board.at;
    say(board.problem || "Live", board.problem ? "bad" : "good");
    find();
  });
  source.addEventListener("error", () => say("Not refreshed: tenancy ui has ended. Start it again and open its new address.", "bad"));
})();
