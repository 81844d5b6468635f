// Applies the theme before the page is painted. The server sets data-theme; "system" follows the operating system.
(function () {
  "use strict";
  var root = document.documentElement;
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  function apply() {
    root.classList.toggle("pf-v6-theme-dark", root.dataset.theme === "dark" || (root.dataset.theme === "system" && dark.matches));
  }
  apply();
  dark.addEventListener("change", apply);
})();
