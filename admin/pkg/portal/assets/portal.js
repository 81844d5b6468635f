// Improves pages that work without it: ages stay current, texts can be copied, and pages update themselves.
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

  // Pages that update themselves. A stream of events reports that the page has changed. Then htmx reads the page and changes what differs. The
  // state of the connection is stated in words.
  var connection = document.getElementById("connection");
  function state(text, kind) {
    if (connection && connection.textContent !== text) { connection.textContent = text; connection.dataset.state = kind; }
  }
  var beat = 15000; // the longest pause between two events; see Beat in package live
  var stream, silence, retry, failures = 0, loading = false, again = false;
  function livePage() { return document.querySelector("#content[data-live]"); }
  function close() {
    clearTimeout(silence);
    clearTimeout(retry);
    if (stream) { stream.close(); stream = null; }
  }
  // open follows the page from the revision that it shows. A page that nobody sees is not followed: browsers limit the number of connections.
  function open() {
    close();
    var page = livePage();
    if (!page || document.hidden) { return; }
    var opened = stream = new EventSource(page.dataset.live + "?after=" + encodeURIComponent(page.dataset.revision));
    alive();
    stream.addEventListener("changed", function () { alive(); load(); });
    stream.addEventListener("current", function () { alive(); if (!loading) { current(); } });
    stream.addEventListener("behind", function () {
      alive();
      state("The portal does not receive changes at the moment. This page may be out of date.", "lost");
    });
    stream.addEventListener("end", function (event) {
      var ending = JSON.parse(event.data);
      close();
      if (ending.message) { state(ending.message, "lost"); }
      if (ending.retryAfter) { reopen(ending.retryAfter); }
    });
    stream.addEventListener("error", function () {
      if (stream !== opened) { return; }
      state("The connection is lost. This page may be out of date. Trying again.", "lost");
      if (opened.readyState === EventSource.CLOSED) { fail(); } // otherwise the browser connects again, with the last revision
    });
  }
  function alive() {
    clearTimeout(silence);
    silence = setTimeout(fail, 3 * beat);
  }
  function current() {
    failures = 0;
    state("Up to date", "live");
  }
  function fail() {
    close();
    state("The connection is lost. This page may be out of date. Trying again.", "lost");
    reopen(Math.min(30000, 1000 * Math.pow(2, failures++)));
  }
  // reopen connects after a time in milliseconds. The random part keeps browsers from returning at the same time.
  function reopen(after) { retry = setTimeout(open, after * (1 + Math.random())); }
  function load() {
    if (loading) { again = true; return; }
    loading = true;
    htmx.trigger(livePage(), "live");
  }
  document.addEventListener("htmx:afterRequest", function (event) {
    if (event.detail.elt.id !== "content") { return; }
    loading = false;
    if (!event.detail.successful) { again = false; fail(); return; } // the page keeps its revision, so that the next stream reports the change
    if (!livePage()) { close(); state("Up to date. This page does not change any more.", "ended"); return; }
    if (again) { again = false; load(); return; }
    current();
  });
  document.addEventListener("visibilitychange", open);
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", function (event) { if (event.persisted) { open(); } });
  open();
  document.addEventListener("htmx:afterSettle", function () { refreshAges(); showButtons(); });
})();
