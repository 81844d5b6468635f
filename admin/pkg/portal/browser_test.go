package portal

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	browserpage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

var screenshots = flag.String("screenshots", "", "write screenshots of the pages into this `folder`")

// browserTimeout bounds one step in the browser. It is not reached unless the step never ends.
const browserTimeout = 2 * time.Minute

// chromium is a browser of its own for one test.
type chromium struct {
	t   *testing.T
	ctx context.Context
	url string
}

// newChromium starts Debian's headless Chromium, or skips the test.
func newChromium(t *testing.T, h *harness) *chromium {
	t.Helper()
	nightly.Only(t)
	program, err := exec.LookPath("chromium-headless-shell")
	if err != nil {
		t.Skip("needs chromium-headless-shell; as root on Debian, `make chromium` installs it")
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.WindowSize(1440, 1000), chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("ignore-certificate-errors", true), chromedp.WSURLReadTimeout(browserTimeout))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	c := &chromium{t: t, ctx: ctx, url: h.url}
	// The first call starts the browser, which lives as long as its context.
	must.Do(t, chromedp.Do(ctx, chromedp.Navigate("about:blank")))
	// The policy of the pages does not apply to this script. It collects what the policy has blocked.
	command(c, browserpage.AddScriptToEvaluateOnNewDocument, browserpage.AddScriptToEvaluateOnNewDocumentParams{
		Source: `window.blocked = []; document.addEventListener("securitypolicyviolation", (e) => window.blocked.push(e.violatedDirective + " " + e.blockedURI + " " + e.sample));`})
	return c
}

// in returns the browser for a part of the test.
func (c *chromium) in(t *testing.T) *chromium {
	part := *c
	part.t = t
	return &part
}

// do executes steps.
func (c *chromium) do(steps ...chromedp.Action[chromedp.Void]) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, browserTimeout)
	defer cancel()
	must.Do(c.t, chromedp.Do(ctx, steps...))
}

// evaluate returns the value of an expression.
func evaluate[T any](c *chromium, expression string) T {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, browserTimeout)
	defer cancel()
	return must.Get(chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise)))(c.t)
}

// command sends a command of the protocol.
func command[P, R any](c *chromium, method cdp.Command[P, R], parameters P) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, browserTimeout)
	defer cancel()
	must.Get(chromedp.Run(ctx, func(ctx context.Context, target *chromedp.Target) (R, error) {
		return cdp.Call(ctx, target, method, parameters)
	}))(c.t)
}

// await waits until an expression is true.
func (c *chromium) await(expression string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, browserTimeout)
	defer cancel()
	for {
		_, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(browserTimeout)))
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			c.t.Fatalf("%s: %v", expression, err)
		}
		// The page in which the expression was evaluated is gone.
	}
}

// open loads a page of the portal.
func (c *chromium) open(path string) {
	c.t.Helper()
	c.do(chromedp.Navigate(c.url+path), chromedp.WaitReady("#main"))
}

// signIn signs a person in at the identity provider.
func (c *chromium) signIn(name string) { c.signInAt("/", name) }

// signInAt signs a person in at the identity provider, to which a path of the portal leads.
func (c *chromium) signInAt(path, name string) {
	c.t.Helper()
	c.do(chromedp.Navigate(c.url+path), chromedp.SetValue("#password", password), chromedp.Click(fmt.Sprintf(`//button[text()=%q]`, name)), chromedp.WaitReady(".portal-nav"))
}

// press moves the focus with the tabulator from where it is to the link or the button with a text, and presses Enter.
func (c *chromium) press(text, from string) {
	c.t.Helper()
	for range 200 {
		c.do(chromedp.KeyEvent(kb.Tab))
		if evaluate[string](c, `(document.activeElement.innerText || "").trim()`) == text {
			c.do(chromedp.KeyEvent(kb.Enter))
			c.await(fmt.Sprintf(`location.pathname !== %q && document.readyState === "complete"`, from))
			return
		}
	}
	c.t.Fatalf("the tabulator does not reach %q on %s", text, from)
}

// location returns the path of the current page.
func (c *chromium) location() string {
	c.t.Helper()
	return evaluate[string](c, `location.pathname`)
}

// check fails for what the policy of the page has blocked, and for violations of WCAG 2.2 A and AA that axe finds.
func (c *chromium) check(name, axe string) {
	c.t.Helper()
	if blocked := evaluate[[]string](c, `window.blocked`); len(blocked) > 0 {
		c.t.Errorf("%s: the policy of the page has blocked %q", name, blocked)
	}
	evaluate[chromedp.Void](c, axe)
	found := evaluate[string](c, `axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]})
		.then((r) => JSON.stringify(r.violations.map((v) => ({rule: v.id, help: v.help, nodes: v.nodes.slice(0, 3).map((n) => n.html.slice(0, 300) + " " + (n.failureSummary || ""))}))))`)
	var violations []struct {
		Rule, Help string
		Nodes      []string
	}
	must.Do(c.t, json.Unmarshal([]byte(found), &violations))
	for _, v := range violations {
		c.t.Errorf("%s: %s: %s\n%s", name, v.Rule, v.Help, strings.Join(v.Nodes, "\n"))
	}
}

// screenshot writes a picture of the whole page if -screenshots is set.
func (c *chromium) screenshot(name string) {
	c.t.Helper()
	if *screenshots == "" {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, browserTimeout)
	defer cancel()
	picture := must.Get(chromedp.Run(ctx, chromedp.FullScreenshot(100)))(c.t)
	must.Do(c.t, os.WriteFile(filepath.Join(*screenshots, name+".png"), picture, 0o644))
}

// axeSource returns the script of axe.
func axeSource(t *testing.T) string {
	t.Helper()
	source := must.Get(os.ReadFile("testdata/vendor/axe-core/axe.min.js"))(t)
	return string(source)
}

// TestPagesInABrowser opens each page in a browser in both themes. No page may violate its policy or WCAG 2.2 AA.
func TestPagesInABrowser(t *testing.T) {
	h := newFilledHarness(t)
	if *screenshots != "" {
		h.api.fill("orders-dev")
	}
	c := newChromium(t, h)
	axe := axeSource(t)
	c.signIn("oncall@example.com")
	for _, theme := range []string{"light", "dark"} {
		command(c, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
		for name, path := range readPages {
			t.Run(name+"-"+theme, func(t *testing.T) {
				c := c.in(t)
				c.open(path)
				c.check(name, axe)
				c.screenshot(name + "-" + theme)
			})
		}
		t.Run("recording-content-"+theme, func(t *testing.T) {
			c := c.in(t)
			c.open(readPages["recording"])
			evaluate[bool](c, `document.querySelector("form[action$='/content'] button").click(); true`)
			c.await(`location.pathname.endsWith("/content") && !!document.querySelector("#transcript") && document.readyState === "complete"`)
			c.check("recording-content", axe)
			c.screenshot("recording-content-" + theme)
		})
	}
	command(c, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: 844, DeviceScaleFactor: 1, Mobile: true})
	for _, name := range []string{"region", "cluster", "clusters", "retry"} {
		c.open(readPages[name])
		if evaluate[bool](c, `document.documentElement.scrollWidth > document.documentElement.clientWidth`) {
			t.Errorf("%s does not fit into a narrow window", name)
		}
		c.screenshot(name + "-narrow")
	}
}

// TestKeyboardIsEnough finds a waiting cluster, reads what it waits for, and retries it, only with the keyboard.
func TestKeyboardIsEnough(t *testing.T) {
	h := newFilledHarness(t)
	c := newChromium(t, h)
	c.signIn("oncall@example.com")
	c.open("/")
	c.press("Clusters", "/")
	c.press("payments-prod", "/clusters")
	cluster := "/clusters/" + testUID
	if got := c.location(); got != cluster {
		t.Fatalf("the cluster leads to %s", got)
	}
	if explained := evaluate[string](c, `document.querySelector("section[aria-labelledby=explanation]").innerText`); !strings.Contains(explained, "waits for 2 of 5 nodes") {
		t.Errorf("the page explains %q", explained)
	}
	c.press("Retry", cluster)
	c.press("Retry", cluster+"/actions/retry")
	if got := c.location(); got != "/operations/"+testOperation {
		t.Errorf("the retry leads to %s", got)
	}
	if len(h.api.requests) != 1 || h.api.requests[0].Path != cluster+"/retry" {
		t.Errorf("the requests are %v", h.api.requests)
	}
}

// TestKeyboardCordonsAShard finds a shard, reads where its clusters would fit, and cordons it, only with the keyboard.
func TestKeyboardCordonsAShard(t *testing.T) {
	h := newFilledHarness(t)
	h.api.responses["/elevations"] = adminv1.ElevationList{Items: []adminv1.Elevation{{ID: testElevation, Class: adminv1.Operate, Active: true}}}
	h.api.responses["PATCH /shards/mgmt-1"] = h.api.responses["/operations/"+testOperation]
	c := newChromium(t, h)
	c.signIn("oncall@example.com")
	c.open("/shards")
	c.press("mgmt-1", "/shards")
	c.press("Cordon", "/shards/mgmt-1")
	if plan := evaluate[string](c, `document.querySelector("section[aria-labelledby=preview]").innerText`); !strings.Contains(plan, "56 of 57 clusters would move") {
		t.Errorf("the form shows the plan %q", plan)
	}
	c.press("Cordon", "/shards/mgmt-1/actions/cordon")
	if got := c.location(); got != "/operations/"+testOperation {
		t.Errorf("the form leads to %s", got)
	}
	if len(h.api.requests) != 1 || !strings.Contains(h.api.requests[0].Body, `"cordoned":true`) {
		t.Errorf("the requests are %v", h.api.requests)
	}
}

// connectionState is the state of the connection of a page.
const connectionState = `document.getElementById("connection").dataset.state`

// openLivePage starts a portal that follows changes, and opens a page of it, which is then current.
func openLivePage(t *testing.T, path string) (*harness, *chromium) {
	t.Helper()
	h := newFilledHarness(t)
	h.followChanges()
	c := newChromium(t, h)
	c.signIn("oncall@example.com")
	c.open(path)
	c.await(connectionState + ` === "live"`)
	return h, c
}

// TestOperationPageFollowsTheOperation checks that the page of an operation shows its end without a reload, keeps the focus, and then stops.
func TestOperationPageFollowsTheOperation(t *testing.T) {
	h, c := openLivePage(t, "/operations/"+testOperation)
	evaluate[chromedp.Void](c, `window.kept = true; document.querySelector("#content a[href^='/clusters/']").focus()`)
	h.setOperation(succeeded(h.api.responses["/operations/"+testOperation]))
	c.await(`document.querySelector(".portal-heading").innerText.includes("Succeeded")`)
	if !evaluate[bool](c, `window.kept === true`) {
		t.Error("the page was loaded again")
	}
	if focused := evaluate[string](c, `document.activeElement.getAttribute("href") || ""`); !strings.HasPrefix(focused, "/clusters/") {
		t.Errorf("the focus moved to %q", focused)
	}
	c.await(connectionState + ` === "ended"`)
	if evaluate[bool](c, `document.getElementById("content").hasAttribute("data-live")`) {
		t.Error("the page follows an operation that has ended")
	}
}

// TestClusterPageShowsChanges checks that the page of a cluster and the page of the region show a change in Cluster Service without a reload.
func TestClusterPageShowsChanges(t *testing.T) {
	h, c := openLivePage(t, "/clusters/"+testUID)
	change := func(path string, response any) {
		h.api.mu.Lock()
		h.api.responses[path] = response
		h.api.mu.Unlock()
		h.fleet.changes <- &clusterservicev1.WatchResponse{Revision: 3, Event: &clusterservicev1.WatchResponse_Cluster{Cluster: &clusterservicev1.Cluster{Uid: testUID}}}
	}
	evaluate[chromedp.Void](c, `window.kept = true`)
	cluster := h.api.responses["/clusters/"+testUID].(adminv1.Cluster)
	cluster.Version = "4.20.47"
	change("/clusters/"+testUID, cluster)
	c.await(`document.getElementById("content").innerText.includes("4.20.47") && ` + connectionState + ` === "live" && window.kept`)
	c.check("the page of a cluster after a change", axeSource(t))

	c.open("/")
	c.await(connectionState + ` === "live"`)
	evaluate[chromedp.Void](c, `window.kept = true`)
	region := h.api.responses["/explanation"].(adminv1.RegionExplanation)
	region.Clusters = 8642
	change("/explanation", region)
	c.await(`document.getElementById("content").innerText.includes("8642") && ` + connectionState + ` === "live" && window.kept`)
}

// TestListOfElevationsShowsRequests checks that the list of elevations shows a new request without a reload, and keeps the filter of its address.
func TestListOfElevationsShowsRequests(t *testing.T) {
	h, c := openLivePage(t, "/access?show=all")
	evaluate[chromedp.Void](c, `window.kept = true`)
	h.api.mu.Lock()
	list := h.api.responses["/elevations"].(adminv1.ElevationList)
	asked := list.Items[0]
	asked.ID, asked.Name, asked.State = "e0000000-0000-4000-8000-000000000001", "another@example.com", adminv1.ElevationRequested
	list.Items = append([]adminv1.Elevation{asked}, list.Items...)
	h.api.responses["/elevations"] = list
	h.api.mu.Unlock()
	batch := h.db.NewBatch(database.AdminPartition)
	database.Create(batch, h.db.Elevations(), database.ElevationKey(asked.ID), database.ElevationDocument{ElevationID: asked.ID})
	must.Do(t, batch.Commit(t.Context()))
	c.await(`document.getElementById("content").innerText.includes("another@example.com") && ` + connectionState + ` === "live" && window.kept`)
	if filter := evaluate[string](c, `document.querySelector(".portal-tabs [aria-current]").getAttribute("href")`); filter != "/access?show=all" {
		t.Errorf("the list shows the filter %q", filter)
	}
	c.check("the list of elevations after a change", axeSource(t))
}

// TestPageStatesALostConnection interrupts the connection while an operation changes. The page states that, and shows the change after the
// connection has returned.
func TestPageStatesALostConnection(t *testing.T) {
	h, c := openLivePage(t, "/operations/"+testOperation)
	axe := axeSource(t)
	h.away.Store(true)
	h.pages.CloseClientConnections()
	c.await(connectionState + ` === "lost" && document.getElementById("connection").innerText.includes("The connection is lost.")`)
	c.check("a page without a connection", axe)
	operation := h.api.responses["/operations/"+testOperation].(adminv1.Operation)
	operation.Attempts = 8642
	h.setOperation(operation)
	h.away.Store(false)
	c.await(`document.getElementById("content").innerText.includes("8642") && ` + connectionState + ` === "live"`)
	c.check("a page with a connection", axe)
}

// TestPageStatesTheEndOfTheSession ends the session in another window. The page states that, and stays.
func TestPageStatesTheEndOfTheSession(t *testing.T) {
	_, c := openLivePage(t, "/operations/"+testOperation)
	evaluate[chromedp.Void](c, `fetch("/sign-out", {method: "POST", redirect: "manual"}).then(() => {})`)
	c.await(`document.getElementById("connection").innerText.includes("Your session has ended.")`)
	if got := c.location(); got != "/operations/"+testOperation {
		t.Errorf("the page was replaced by %s", got)
	}
}

// TestStepUpInABrowser sends a form that admin refuses until the engineer has signed in again. The form comes back and is sent once.
func TestStepUpInABrowser(t *testing.T) {
	h := newFilledHarness(t)
	path := "/clusters/" + testUID + "/pause"
	h.api.conditions = map[string]string{path: "c1"}
	h.api.responses["POST "+path] = adminv1.Operation{ID: testOperation}
	c := newChromium(t, h)
	axe := axeSource(t)
	c.signIn("oncall@example.com")
	c.open("/clusters/" + testUID + "/actions/pause")
	evaluate[bool](c, `document.querySelector("[name=duration]").value = "45m"; document.querySelector("form[method=post][action*='/actions/'] button[type=submit]").click(); true`)
	c.await(`!!document.querySelector("a[href='/step-up']")`)
	c.check("step-up", axe)
	c.screenshot("step-up")
	c.signInAt("/step-up", "oncall@example.com")
	if c.location() != heldFormPath {
		t.Fatalf("the sign-in leads to %s", c.location())
	}
	c.check("held form", axe)
	c.screenshot("held-form")
	if len(h.api.changes()) > 0 {
		t.Errorf("the sign-in alone requested %v", h.api.changes())
	}
	evaluate[bool](c, `document.querySelector("form[action*='/actions/'] button[type=submit]").click(); true`)
	c.await(`location.pathname === "/operations/` + testOperation + `"`)
	changes := h.api.changes()
	if len(changes) != 1 || changes[0].Path != path || !strings.Contains(changes[0].Body, "45m") || changes[0].Key == "" {
		t.Errorf("the API got %+v", changes)
	}
}
