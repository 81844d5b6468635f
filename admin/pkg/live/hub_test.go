package live

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// browser is the connection of a browser that follows a page.
type browser struct {
	header http.Header
	// disconnect ends the request, and done is closed after the stream.
	disconnect context.CancelFunc
	done       chan struct{}

	mu       sync.Mutex
	received []string
	// stalled is set while the browser does not read.
	stalled                     bool
	readDeadline, writeDeadline time.Time
}

func (b *browser) Header() http.Header { return b.header }
func (b *browser) WriteHeader(int)     {}
func (b *browser) Flush()              {}

func (b *browser) SetReadDeadline(deadline time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readDeadline = deadline
	return nil
}

func (b *browser) SetWriteDeadline(deadline time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writeDeadline = deadline
	return nil
}

// Write fails at the deadline while the browser does not read. It runs in a synctest bubble.
func (b *browser) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stalled {
		time.Sleep(time.Until(b.writeDeadline))
		return 0, fmt.Errorf("writing: %w", os.ErrDeadlineExceeded)
	}
	for line := range strings.Lines(string(text)) {
		if name, found := strings.CutPrefix(line, "event: "); found {
			b.received = append(b.received, strings.TrimSpace(name))
		}
	}
	return len(text), nil
}

// events waits until the stream has nothing to do, and returns the events since the last call.
func (b *browser) events() []string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	received := b.received
	b.received = nil
	return received
}

// expect fails if the browser has received other events.
func (b *browser) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, b.events()); diff != "" {
		t.Errorf("%s: events (-want +got):\n%s", what, diff)
	}
}

// connect lets a browser follow a page.
func connect(t *testing.T, h *Hub, stream Stream) *browser {
	t.Helper()
	if stream.Check == nil {
		stream.Check = func() bool { return true }
	}
	if stream.Age == 0 {
		stream.Age = time.Hour
	}
	ctx, disconnect := context.WithCancel(t.Context())
	b := &browser{header: http.Header{}, done: make(chan struct{}), disconnect: disconnect, readDeadline: time.Now().Add(time.Minute)}
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	go func() { defer close(b.done); h.Serve(b, r, stream) }()
	return b
}

func newHub() *Hub { return NewHub(prometheus.NewPedanticRegistry()) }

// of returns the page with one topic.
func of(topic Topic) Page { return Page{Topics: []Topic{topic}} }

// expectEnded fails if the metric has another number of streams that ended for a reason, or if streams are open.
func expectEnded(t *testing.T, h *Hub, reason end, want float64) {
	t.Helper()
	synctest.Wait()
	if got := testutil.ToFloat64(h.ended.WithLabelValues(string(reason))); got != want {
		t.Errorf("%v streams have ended because of %s, want %v", got, reason, want)
	}
	if got := testutil.ToFloat64(h.open); got != 0 {
		t.Errorf("%v streams are open", got)
	}
	if len(h.subscribers) > 0 || len(h.sessions) > 0 {
		t.Errorf("the hub keeps %d topics and %d sessions of ended streams", len(h.subscribers), len(h.sessions))
	}
}

// TestChangesReachTheStreamsOfTheirTopics publishes changes to streams of several sessions.
func TestChangesReachTheStreamsOfTheirTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		first, second := connect(t, h, Stream{Page: of("a"), Session: "1", After: h.Revision()}), connect(t, h, Stream{Page: of("a"), Session: "2", After: h.Revision()})
		other := connect(t, h, Stream{Page: of("b"), Session: "1", After: h.Revision()})
		both := connect(t, h, Stream{Page: Page{Topics: []Topic{"a", "b"}}, Session: "1", After: h.Revision()})
		for _, b := range []*browser{first, second, other, both} {
			b.expect(t, "beginning", "current")
		}
		h.Publish("a")
		first.expect(t, "change of a", "changed")
		second.expect(t, "change of a", "changed")
		other.expect(t, "change of a")
		both.expect(t, "change of a", "changed")
		h.Publish("a", "b")
		both.expect(t, "change of a and b", "changed")
		other.expect(t, "change of a and b", "changed")
		first.events()
		h.PublishAll()
		first.expect(t, "change of everything", "changed")
		other.expect(t, "change of everything", "changed")
		if got := first.header.Get("Content-Type"); got != "text/event-stream" || !first.readDeadline.IsZero() {
			t.Errorf("the stream has the content type %q and reads until %s", got, first.readDeadline)
		}
		for _, b := range []*browser{first, second, other, both} {
			b.disconnect()
			<-b.done
		}
		expectEnded(t, h, endClosed, 4)
	})
}

// TestReturningBrowserCatchesUp connects browsers with the revision of the page that they show.
func TestReturningBrowserCatchesUp(t *testing.T) {
	for reason, tc := range map[string]struct {
		after func(h *Hub) string
		then  func(h *Hub)
		want  string
	}{
		"nothing has changed":             {(*Hub).Revision, func(*Hub) {}, "current"},
		"another object has changed":      {(*Hub).Revision, func(h *Hub) { h.Publish("b") }, "current"},
		"the object has changed":          {(*Hub).Revision, func(h *Hub) { h.Publish("a"); h.Publish("b") }, "changed"},
		"everything may have changed":     {(*Hub).Revision, (*Hub).PublishAll, "changed"},
		"the page is of another process":  {func(*Hub) string { return newHub().Revision() }, func(*Hub) {}, "changed"},
		"the page has no revision":        {func(*Hub) string { return "" }, func(*Hub) {}, "changed"},
		"the revision is no number":       {func(h *Hub) string { return h.epoch + ".x" }, func(*Hub) {}, "changed"},
		"the revision is in the future":   {func(h *Hub) string { return h.epoch + ".1" }, func(*Hub) {}, "changed"},
		"as many changes as are known":    {(*Hub).Revision, publishMany(maxRemembered), "current"},
		"more changes than are known":     {(*Hub).Revision, publishMany(maxRemembered + 1), "changed"},
		"many changes of another object":  {(*Hub).Revision, func(h *Hub) { repeat(2*maxRemembered, func(int) { h.Publish("b") }) }, "current"},
		"a change before many of another": {(*Hub).Revision, func(h *Hub) { h.Publish("a"); repeat(2*maxRemembered, func(int) { h.Publish("b") }) }, "changed"},
	} {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHub()
				after := tc.after(h)
				tc.then(h)
				b := connect(t, h, Stream{Page: of("a"), Session: "1", After: after})
				b.expect(t, "beginning", tc.want)
				if len(h.recent) > maxRemembered || len(h.changed) > maxRemembered {
					t.Errorf("the hub remembers %d changes of %d topics", len(h.recent), len(h.changed))
				}
				b.disconnect()
				<-b.done
			})
		})
	}
}

// publishMany returns a function that publishes changes of different objects.
func publishMany(n int) func(*Hub) {
	return func(h *Hub) { repeat(n, func(i int) { h.Publish(Topic(fmt.Sprint("object/", i))) }) }
}

func repeat(n int, do func(int)) {
	for i := range n {
		do(i)
	}
}

// TestSlowBrowserIsDropped stops reading. The stream ends at the deadline of the next event; others receive it.
func TestSlowBrowserIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		slow, fast := connect(t, h, Stream{Page: of("a"), Session: "1", After: h.Revision()}), connect(t, h, Stream{Page: of("a"), Session: "2", After: h.Revision()})
		slow.events()
		fast.events()
		after := h.Revision()
		slow.mu.Lock()
		slow.stalled = true
		slow.mu.Unlock()
		repeat(1000, func(int) { h.Publish("a") })
		if got := slices.Compact(fast.events()); !slices.Equal(got, []string{"changed"}) {
			t.Errorf("the other browser received %q", got)
		}
		begin := time.Now()
		<-slow.done
		if got := time.Since(begin); got != writeTimeout {
			t.Errorf("the slow stream ended after %s", got)
		}
		again := connect(t, h, Stream{Page: of("a"), Session: "1", After: after})
		again.expect(t, "return of the slow browser", "changed")
		for _, b := range []*browser{fast, again} {
			b.disconnect()
			<-b.done
		}
		expectEnded(t, h, endSlow, 1)
	})
}

// TestPauseJoinsChanges checks that a page with a pause receives the first change at once, and one event for those during the pause.
func TestPauseJoinsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		b := connect(t, h, Stream{Page: Page{Topics: []Topic{"a"}, Pause: 5 * time.Second}, Session: "1", After: h.Revision()})
		b.events()
		h.Publish("a")
		b.expect(t, "first change", "changed")
		h.Publish("a")
		h.Publish("a")
		time.Sleep(4 * time.Second)
		b.expect(t, "changes during the pause")
		time.Sleep(time.Second)
		b.expect(t, "end of the pause", "changed")
		b.disconnect()
		<-b.done
	})
}

// TestStreamsAreBounded opens more streams than a session and the process may have.
func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		var open []*browser
		repeat(MaxStreams, func(i int) {
			open = append(open, connect(t, h, Stream{Page: of("a"), Session: fmt.Sprint("session/", i/MaxSessionStreams), After: h.Revision()}))
		})
		synctest.Wait()
		expectEnd := func(session, want string) {
			t.Helper()
			refused := connect(t, h, Stream{Page: of("a"), Session: session, After: h.Revision()})
			<-refused.done
			refused.expect(t, session, want)
		}
		expectEnd("another session", "end")
		open[0].disconnect()
		<-open[0].done
		expectEnd("session/1", "end")
		again := connect(t, h, Stream{Page: of("a"), Session: "another session", After: h.Revision()})
		again.expect(t, "after another stream ended", "current")
		for _, b := range append(open, again) {
			b.disconnect()
			<-b.done
		}
		expectEnded(t, h, endLimit, 2)
	})
}

// TestStreamsEnd checks the reasons for which streams end.
func TestStreamsEnd(t *testing.T) {
	for reason, act := range map[end]func(*Hub){
		endSession:  func(h *Hub) { h.EndSession("another"); h.EndSession("1") },
		endShutdown: (*Hub).Release,
		endRenewed:  func(*Hub) { time.Sleep(MaxAge) },
	} {
		t.Run(string(reason), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHub()
				b := connect(t, h, Stream{Page: of("a"), Session: "1", After: h.Revision()})
				b.events()
				act(h)
				<-b.done
				if events := b.events(); len(events) == 0 || events[len(events)-1] != "end" {
					t.Errorf("the stream sent %q", events)
				}
				expectEnded(t, h, reason, 1)
			})
		})
	}
}

// TestStreamEndsWithItsRights checks that a stream ends when the session or the token of its user would.
func TestStreamEndsWithItsRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		begin := time.Now()
		b := connect(t, h, Stream{Page: of("a"), Session: "1", After: h.Revision(), Age: time.Minute})
		<-b.done
		if got := time.Since(begin); got != time.Minute {
			t.Errorf("the stream ended after %s", got)
		}
		expectEnded(t, h, endRenewed, 1)
	})
}

// TestStreamIsRefusedAfterTheEnd checks that no stream begins after the process was asked to stop, or for a session that ended while it began.
func TestStreamIsRefusedAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		ended := connect(t, h, Stream{Page: of("a"), Session: "1", Check: func() bool { return false }})
		<-ended.done
		ended.expect(t, "an ended session", "end")
		expectEnded(t, h, endSession, 1)
		h.Release()
		late := connect(t, h, Stream{Page: of("a"), Session: "1"})
		<-late.done
		late.expect(t, "a process that stops", "end")
		expectEnded(t, h, endShutdown, 1)
	})
}

// source is a Source with a state that the test sets.
type source struct {
	mu    sync.Mutex
	fresh bool
}

func (s *source) Fresh() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fresh
}

// TestStreamStatesThatChangesAreNotReported checks that no event states that a page is current while a source of its changes cannot be read.
func TestStreamStatesThatChangesAreNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, away := newHub(), &source{}
		b := connect(t, h, Stream{Page: Page{Topics: []Topic{"a"}, Sources: []Source{away}}, Session: "1", After: h.Revision()})
		b.expect(t, "beginning", "behind")
		away.mu.Lock()
		away.fresh = true
		away.mu.Unlock()
		time.Sleep(Beat)
		b.expect(t, "after the source has returned", "current")
		b.disconnect()
		<-b.done
	})
}
