// Light or dark, as the system has it until somebody chooses.
const themeButton = document.getElementById("theme");
function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  themeButton.textContent = dark ? "Light" : "Dark";
}
const prefers = matchMedia("(prefers-color-scheme: dark)");
function followTheme(repaint) {
  prefers.addEventListener("change", () => { setTheme(prefers.matches); repaint(); });
  themeButton.onclick = () => { setTheme(document.documentElement.dataset.theme !== "dark"); repaint(); };
}
setTheme(prefers.matches);
