"use strict";
// Before anything is drawn: the theme that was chosen, if one was.
(function () {
  const root = document.documentElement;
  const chosen = localStorage.getItem("theme");
  if (chosen) root.dataset.theme = chosen;
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-toggle-theme]")) {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      localStorage.setItem("theme", root.dataset.theme);
      document.dispatchEvent(new Event("themechange"));
    }
    const copy = event.target.closest("[data-copy]");
    if (copy) {
      navigator.clipboard.writeText(document.getElementById(copy.dataset.copy).textContent.trim());
      copy.textContent = "Copied";
    }
  });
})();
