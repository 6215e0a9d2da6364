// The page of one model.
const D = JSON.parse(document.getElementById("data").textContent);
document.title = "npuc profile: " + D.model;
followTheme(profileView(D, document.getElementById("profile")).repaint);
