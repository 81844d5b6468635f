// Improves pages that work without it: ages stay current, texts can be copied, and the page of an operation follows it.
(function () {
  "use strict";

  // Ages. The server writes the age of each <time data-age>; here they grow.
  var units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  function age(seconds) {
    for (var i = 0; i < units.length; i++) {
      if (seconds >= units[i][1] || i === units.length - 1) {
        var text = Math.floor(seconds / units[i][1]) + " " + units[i][0];
        var rest = i < 2 ? Math.floor((seconds % units[i][1]) / units[i + 1][1]) : 0;
        return rest > 0 ? text + " " + rest + " " + units[i + 1][0] : text;
      }
    }
  }
  // The clocks of the server and of this machine may differ.
  var offset = 0;
  function measure() {
    var now = document.querySelector("meta[name=portal-now]");
    if (now) { offset = Date.parse(now.content) - Date.now(); }
  }
  function refreshAges() {
    var now = Date.now() + offset;
    document.querySelectorAll("time[data-age]").forEach(function (element) {
      var seconds = Math.max(0, (now - Date.parse(element.dateTime)) / 1000);
      var text = age(seconds);
      if (element.textContent !== text) { element.textContent = text; }
    });
  }
  measure();
  setInterval(refreshAges, 5000);

  // Copy buttons. They are hidden until a script can serve them.
  function showButtons() {
    document.querySelectorAll("button[data-copy][hidden]").forEach(function (button) { button.hidden = false; });
  }
  document.addEventListener("click", function (event) {
    var button = event.target.closest("button[data-copy]");
    if (!button) { return; }
    navigator.clipboard.writeText(button.dataset.copy).then(function () {
      var status = document.getElementById("status");
      if (status) { status.textContent = "Copied: " + button.dataset.copy; }
    });
  });
  showButtons();

  // A form is sent once, also if its button is pressed twice. The idempotency key protects the rest.
  document.addEventListener("submit", function (event) {
    if (event.target.dataset.sent) { event.preventDefault(); return; }
    event.target.dataset.sent = "true";
  });
  window.addEventListener("pageshow", function () {
    document.querySelectorAll("form[data-sent]").forEach(function (form) { delete form.dataset.sent; });
  });

  // Pages that follow an operation. The state of the connection is stated in words.
  var connection = document.getElementById("connection");
  function state(text, kind) {
    if (connection && connection.textContent !== text) { connection.textContent = text; connection.dataset.state = kind; }
  }
  document.addEventListener("htmx:afterRequest", function (event) {
    if (event.detail.successful) { state("Up to date", "live"); } else { state("The portal does not answer. Trying again.", "lost"); }
  });
  document.addEventListener("htmx:afterSettle", function () { refreshAges(); showButtons(); });
})();
