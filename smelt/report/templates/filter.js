(function () {
  const search = document.getElementById("search");
  const verdict = document.getElementById("verdict");
  const shown = document.getElementById("shown");
  if (!search) return;
  const rows = Array.from(document.querySelectorAll(".ledger tbody tr"));
  function apply() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const fits = words.every((word) => text.includes(word));
      row.hidden = !(fits && (!verdict.value || row.dataset.verdict === verdict.value));
      if (!row.hidden) count += 1;
    }
    shown.textContent = count + " of " + rows.length + " claims shown";
  }
  search.addEventListener("input", apply);
  verdict.addEventListener("change", apply);
  search.form.addEventListener("submit", (event) => event.preventDefault());
  apply();
})();
