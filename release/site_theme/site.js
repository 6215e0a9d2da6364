// What can be scrolled can be reached by the keyboard: wide blocks of code, and wide tables. The search has a name for readers of screens.
document.addEventListener("DOMContentLoaded", () => {
  for (const part of document.querySelectorAll("pre > code, .md-typeset__scrollwrap, .md-typeset__table")) {
    part.tabIndex = 0;
  }
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
});
