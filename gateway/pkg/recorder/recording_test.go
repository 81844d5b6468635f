package recorder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/remotecommand"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/internal/recording"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/logtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }

// The protocols of which messages are recorded.
const (
	v4 = remotecommand.StreamProtocolV4Name
	v5 = remotecommand.StreamProtocolV5Name
)

// memoryIndex is an Index that is away while away is true.
type memoryIndex struct {
	away  atomic.Bool
	mu    sync.Mutex
	known map[string]Description
}

func (i *memoryIndex) Put(_ context.Context, d Description) error {
	if i.away.Load() {
		return errors.New("the index is away")
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.known[d.ID] = d
	return nil
}

func (i *memoryIndex) get(id string) (Description, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	d, ok := i.known[id]
	return d, ok
}

// harness is a store with its sink, index and readers.
type harness struct {
	t       *testing.T
	dir     string
	sink    string
	index   *memoryIndex
	public  *seal.PublicKeys
	private *seal.PrivateKeys
	signing *audit.SigningKey
	signers audit.Keys
	change  func(*Options)
	log     *logtest.Log
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{t: t, dir: t.TempDir(), sink: t.TempDir(), index: &memoryIndex{known: map[string]Description{}}, log: &logtest.Log{}}
	var err error
	h.public, h.private, err = seal.NewPair()
	must.Do(t, err)
	h.signing, h.signers = newSigning(t)
	return h
}

// newSigning returns a key that signs recordings, and the keys that verify it.
func newSigning(t testing.TB) (*audit.SigningKey, audit.Keys) {
	t.Helper()
	key := must.Get(audit.GenerateKey())(t)
	keys := audit.Keys{}
	keys.Trust("gateway-access", key)
	return key, keys
}

// open opens the store without running it.
func (h *harness) open() *Store {
	h.t.Helper()
	options := Options{Dir: h.dir, Sink: sink.FileAt(h.sink), Index: h.index, Keys: h.public, Signing: h.signing, Log: slog.New(slog.NewTextHandler(h.log, nil)), Metrics: prometheus.NewRegistry()}
	if h.change != nil {
		h.change(&options)
	}
	s := must.Get(Open(options))(h.t)
	return s
}

// run opens and runs the store until stop is called.
func (h *harness) run() (s *Store, stop func()) {
	h.t.Helper()
	s = h.open()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	h.t.Cleanup(stop)
	return s, stop
}

func newFacts() recording.Facts {
	return recording.Facts{ID: uuid.NewString(), SessionID: "s", ClusterUID: "c", ResourceID: "/r", Owner: recording.Person{Name: "alice", ObjectID: "o"}, Reason: "it is slow", Start: time.Now(),
		Kind: "pods/exec", Namespace: "default", Pod: "a"}
}

// start begins a recording of a command.
func (h *harness) start(s *Store) *Recording {
	h.t.Helper()
	r := must.Get(s.Start(newFacts(), []string{"sh"}))(h.t)
	r.Begin()
	return r
}

func (h *harness) take(r *Recording, client bool, message string) {
	h.t.Helper()
	must.Get(r.Take(v5, client, []byte(message)))(h.t)
}

// read returns the input, the output and the end of a log.
func (h *harness) read(content []byte) (input, output string, end *recording.End) {
	h.t.Helper()
	r := must.Get(recording.NewReader(bytes.NewReader(content), h.private, h.signers))(h.t)
	var text bytes.Buffer
	must.Do(h.t, r.WriteAsciicast(&text))
	for _, line := range slices.Collect(bytes.Lines(text.Bytes()))[1:] {
		e := must.Get(recording.ParseEvent(line))(h.t)
		switch e.Code {
		case recording.Input:
			input += e.Data
		case recording.Output:
			output += e.Data
		}
	}
	return input, output, r.End()
}

// exported waits until a recording has ended in the index, and reads it from the sink.
func (h *harness) exported(id string) (input, output string, d Description) {
	h.t.Helper()
	eventually.Soon(h.t, "the recording is exported", func() error {
		if known, ok := h.index.get(id); ok && known.End != nil {
			d = known
			return nil
		}
		return errors.New("it has not ended")
	})

	content := must.Get(os.ReadFile(filepath.Join(h.sink, recording.LogName(id)+".jsonl")))(h.t)
	input, output, end := h.read(content)
	if (end != nil) != d.Complete || int64(len(content)) != d.Bytes || end != nil && *end != *d.End {
		h.t.Errorf("the log of %d bytes has the end %v, the index %+v", len(content), end, d)
	}
	return input, output, d
}

// empty waits until the store has no file.
func (h *harness) empty(s *Store) {
	h.t.Helper()
	eventually.Soon(h.t, "the store is empty", func() error {
		files, err := filepath.Glob(filepath.Join(h.dir, "*"+suffix))
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil && (len(files) > 0 || s.total != 0 || s.open != 0 || len(s.recordings) > 0) {
			err = fmt.Errorf("it has %d files, %d bytes, %d recordings, %d of them open", len(files), s.total, len(s.recordings), s.open)
		}
		return err
	})
}

func TestRecordingIsExportedAndDeleted(t *testing.T) {
	h := newHarness(t)
	s, _ := h.run()
	r := h.start(s)
	h.take(r, true, "\x04"+`{"Width":120,"Height":40}`)
	h.take(r, true, "\x00id\r")
	h.take(r, false, "\x01uid=0")
	h.take(r, false, "\x02 on stderr")
	h.take(r, true, "\xff\x00")
	h.take(r, false, "")
	h.take(r, false, "\x03"+`{"status":"Success"}`)
	eventually.Soon(t, "the index has the recording in progress", func() error {
		if d, ok := h.index.get(r.facts.ID); !ok || d.End != nil || d.Pod != "a" {
			return fmt.Errorf("it has %+v", d)
		}
		return nil
	})
	must.Do(t, r.End(t.Context(), "The client has closed the connection."))
	input, output, d := h.exported(r.facts.ID)
	if input != "id\r" || output != "uid=0 on stderr" || !d.Complete || d.End.Reason != "The client has closed the connection." {
		t.Errorf("input %q, output %q, %+v", input, output, d)
	}
	h.empty(s)
	if strings.Contains(h.log.String(), "uid") {
		t.Errorf("the log has what was printed: %s", h.log)
	}
}

// TestMessagesThatCannotBeRecorded takes messages on channels that a side does not have, and of protocols that the recording does not know.
func TestMessagesThatCannotBeRecorded(t *testing.T) {
	h := newHarness(t)
	s, _ := h.run()
	r := h.start(s)
	for _, tc := range []struct {
		protocol string
		client   bool
		message  string
	}{{"", true, "\x01x"}, {"", true, "\x02x"}, {"", true, "\x03x"}, {"", true, "\x05x"}, {"", true, "0x"}, {"", false, "\x00x"}, {"", false, "\x04{}"}, {"", false, "1x"},
		{v5, true, "\xff"}, {v5, true, "\xff\x05"}, {v5, true, "\xff\x00x"}, {v5, false, "\xffhidden"},
		{"v3.channel.k8s.io", true, "\x00x"}, {"v4.base64.channel.k8s.io", false, "1eA=="}, {"SPDY/3.1+portforward.k8s.io", true, "\x00x"}, {"channel.k8s.io", false, "\x01x"}} {
		protocols := []string{tc.protocol}
		if tc.protocol == "" {
			protocols = []string{v4, v5}
		}
		for _, protocol := range protocols {
			if forwarded, err := r.Take(protocol, tc.client, []byte(tc.message)); err == nil || apierror.KindOf(err) != apierror.Invalid || forwarded != nil {
				t.Errorf("%s, %t: %q: %q, %v", protocol, tc.client, tc.message, forwarded, err)
			}
		}
	}
	if forwarded, err := r.Take("", true, []byte("\x00x")); err == nil || apierror.KindOf(err) != apierror.Invalid {
		t.Errorf("no protocol: %q, %v", forwarded, err)
	}
	must.Do(t, r.End(t.Context(), "."))
	if input, output, _ := h.exported(r.facts.ID); input+output != "" {
		t.Errorf("input %q, output %q", input, output)
	}
}

// TestOnlyMeaningIsForwarded takes messages to which a protocol gives no meaning, or only in part. The other side gets no more than the recording has: in
// v4.channel.k8s.io it may be a changed kubelet.
func TestOnlyMeaningIsForwarded(t *testing.T) {
	h := newHarness(t)
	s, _ := h.run()
	r := h.start(s)
	const size = "\x04" + `{"Width":80,"Height":24}`
	for _, tc := range []struct {
		protocol string
		client   bool
		message  string
		want     string
	}{{v4, true, "\xff\x00", ""}, {v4, true, "\xffhidden", ""}, {v4, false, "\xffhidden", ""}, {v5, true, "\xff\x00", "\xff\x00"}, {v5, false, "\xff\x01", "\xff\x01"},
		{"", true, "", ""}, {"", true, "\x04", ""}, {"", true, "\x04{}", ""}, {"", true, "\x04" + `{"Width":0,"Height":1}`, ""}, {"", true, "\x04" + `{"Width":70000,"Height":1}`, ""}, {"", true, "\x04x", ""},
		{"", true, size, size}, {"", true, "\x04" + ` {"width":80,"x":"hidden", "HEIGHT":24}`, size}, {"", true, size + "hidden", ""},
		{"", true, "\x00typed\n", "\x00typed\n"}, {"", false, "\x01shown\n", "\x01shown\n"}, {"", false, "\x02error\n", "\x02error\n"}, {"", false, "\x03{}", "\x03{}"}} {
		protocols := []string{tc.protocol}
		if tc.protocol == "" {
			protocols = []string{v4, v5}
		}
		for _, protocol := range protocols {
			if forwarded, err := r.Take(protocol, tc.client, []byte(tc.message)); err != nil || string(forwarded) != tc.want {
				t.Errorf("%s, %t: %q: %q, %v, want %q", protocol, tc.client, tc.message, forwarded, err, tc.want)
			}
		}
	}
	must.Do(t, r.End(t.Context(), "."))
	if input, output, _ := h.exported(r.facts.ID); input != "typed\ntyped\n" || output != "shown\nshown\nerror\nerror\n" {
		t.Errorf("input %q, output %q", input, output)
	}
}

// TestDiscardedRecordingLeavesNothing discards the recording of a refused request.
func TestDiscardedRecordingLeavesNothing(t *testing.T) {
	h := newHarness(t)
	s, stop := h.run()
	r := must.Get(s.Start(newFacts(), nil))(t)
	s.signal()
	r.Discard()
	h.empty(s)
	stop()
	if files, _ := os.ReadDir(h.sink); len(files) > 0 || len(h.index.known) > 0 {
		t.Errorf("exported: %v, %v", files, h.index.known)
	}
}

// TestStoreContinuesAfterKill opens the folder of a process that was killed while it wrote, at each byte.
func TestStoreContinuesAfterKill(t *testing.T) {
	h := newHarness(t)
	s := h.open()
	r := h.start(s)
	id := r.facts.ID
	h.take(r, true, "\x00typed")
	h.take(r, false, "\x01printed")
	must.Do(t, r.End(t.Context(), "."))
	_ = s.lock.Close()
	whole := must.Get(os.ReadFile(r.path))(t)
	lines := slices.Collect(bytes.Lines(whole))
	header := len(lines[0]) + len(lines[1])
	for size := 0; size <= len(whole); size += 1 + len(whole)/40 {
		if size+len(whole)/40 >= len(whole) {
			size = len(whole)
		}
		h.index.known = map[string]Description{}
		must.Do(t, errors.Join(os.RemoveAll(h.sink), os.Mkdir(h.sink, 0o700), os.WriteFile(r.path, whole[:size], 0o600)))
		s, stop := h.run()
		if size < header {
			h.empty(s)
			stop()
			if len(h.index.known) > 0 {
				t.Errorf("%d bytes: %+v", size, h.index.known)
			}
			continue
		}
		input, output, d := h.exported(id)
		if !strings.HasPrefix("typed", input) || !strings.HasPrefix("printed", output) || d.Complete != (size == len(whole)) || !d.Complete && d.End.Reason != "The session gateway was interrupted." {
			t.Errorf("%d of %d bytes: input %q, output %q, %+v", size, len(whole), input, output, d)
		}
		h.empty(s)
		stop()
	}
}

// TestStoreContinuesAfterCrash opens the folder after the machine has crashed: a part of what was not durable is zeros, and one file is of another
// recording. The store keeps what can be read.
func TestStoreContinuesAfterCrash(t *testing.T) {
	h := newHarness(t)
	s := h.open()
	if _, err := Open(s.options); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second store: %v", err)
	}
	torn, foreign := h.start(s), h.start(s)
	for _, r := range []*Recording{torn, foreign} {
		h.take(r, true, "\x00typed")
	}
	size := torn.size
	h.take(torn, false, "\x01printed")
	h.take(torn, false, "\x01more")
	for _, r := range []*Recording{torn, foreign} {
		must.Do(t, r.End(t.Context(), "."))
	}
	_ = s.lock.Close()
	content := must.Get(os.ReadFile(torn.path))(t)
	clear(content[size+10 : size+20])
	other := filepath.Join(h.dir, uuid.NewString())
	must.Do(t, errors.Join(os.WriteFile(torn.path, content, 0o600), os.Rename(foreign.path, other+suffix)))
	s, _ = h.run()
	if input, output, d := h.exported(torn.facts.ID); input != "typed" || output != "" || d.Complete {
		t.Errorf("input %q, output %q, %+v", input, output, d)
	}
	h.empty(s)
	if _, err := os.Stat(other + damaged); err != nil || !strings.Contains(h.log.String(), "kept under another name") {
		t.Errorf("the file of another recording: %v: %s", err, h.log)
	}
}

// TestBoundsEndRecordings exceeds each bound. The recording has what was taken before, and its end.
func TestBoundsEndRecordings(t *testing.T) {
	message := append([]byte{channelStdout}, bytes.Repeat([]byte("x"), 60_000)...)
	fill := func(t *testing.T, r *Recording) (taken int, err error) {
		for range 1000 {
			if _, err := r.Take(v5, false, message); err != nil {
				return taken, err
			}
			taken++
		}
		t.Fatal("nothing is bounded")
		return 0, nil
	}
	t.Run("one recording", func(t *testing.T) {
		h := newHarness(t)
		h.change = func(o *Options) { o.MaxBytes = 1 << 20 }
		s, _ := h.run()
		r := h.start(s)
		taken, err := fill(t, r)
		if apierror.KindOf(err) != apierror.Throttled || taken == 0 || !strings.Contains(err.Error(), "1048576 bytes") {
			t.Errorf("after %d messages: %v", taken, err)
		}
		<-r.Failed()
		if _, err := r.Take(v5, true, []byte("\x00x")); err == nil {
			t.Error("a recording continues after its failure")
		}
		if err := r.End(t.Context(), "limit"); err == nil {
			t.Error("the end returns no failure")
		}
		_, output, d := h.exported(r.facts.ID)
		if len(output) < taken*60_000 || len(output) >= (taken+1)*60_000 || !d.Complete || d.Bytes > 1<<20 {
			t.Errorf("%d bytes of output after %d messages, %+v", len(output), taken, d)
		}
		h.empty(s)
		next := h.start(s)
		if err := next.End(t.Context(), "."); err != nil {
			t.Error(err)
		}
	})
	t.Run("all recordings, while the sink is away", func(t *testing.T) {
		h := newHarness(t)
		h.change = func(o *Options) { o.MaxTotal = MinTotal }
		away := h.sink + ".away"
		must.Do(t, os.Rename(h.sink, away))
		s, _ := h.run()
		r := h.start(s)
		if _, err := fill(t, r); apierror.KindOf(err) != apierror.Unavailable || !strings.Contains(err.Error(), "not exported") {
			t.Error(err)
		}
		if err := r.End(t.Context(), "limit"); err == nil {
			t.Error("the end returns no failure")
		}
		if _, err := s.Start(newFacts(), nil); apierror.KindOf(err) != apierror.Unavailable || apierror.As(err).Reason != ReasonUnavailable {
			t.Errorf("another recording: %v", err)
		}
		must.Do(t, os.Rename(away, h.sink))
		if _, _, d := h.exported(r.facts.ID); !d.Complete {
			t.Errorf("%+v", d)
		}
		h.empty(s)
		if err := s.Available(); err != nil {
			t.Error(err)
		}
	})
	t.Run("number", func(t *testing.T) {
		h := newHarness(t)
		h.change = func(o *Options) { o.MaxOpen = 2 }
		s, _ := h.run()
		first := h.start(s)
		second := h.start(s)
		if _, err := s.Start(newFacts(), nil); apierror.KindOf(err) != apierror.Throttled {
			t.Errorf("a third one: %v", err)
		}
		for _, r := range []*Recording{first, second} {
			if err := r.End(t.Context(), "."); err != nil {
				t.Error(err)
			}
		}
		if err := s.Available(); err != nil {
			t.Error(err)
		}
	})
}

// TestIndexAway ends a recording while the index is away. Its file stays until the index has it.
func TestIndexAway(t *testing.T) {
	h := newHarness(t)
	h.index.away.Store(true)
	s, stop := h.run()
	r := h.start(s)
	h.take(r, true, "\x00x")
	must.Do(t, r.End(t.Context(), "."))
	stop()
	must.Get(os.Stat(r.path))(t)
	h.index.away.Store(false)
	s, _ = h.run()
	if input, _, d := h.exported(r.facts.ID); input != "x" || !d.Complete {
		t.Errorf("input %q, %+v", input, d)
	}
	h.empty(s)
}

// TestConflictDoesNotDelayOthers finds a log in the sink that is longer than the file. It stays, and others are exported.
func TestConflictDoesNotDelayOthers(t *testing.T) {
	h := newHarness(t)
	s := h.open()
	ids := []string{"00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"}
	must.Do(t, sink.FileAt(h.sink).Append(t.Context(), recording.LogName(ids[0]), 0, make([]byte, 1<<20)))
	var recordings []*Recording
	for _, id := range ids {
		facts := newFacts()
		facts.ID = id
		r := must.Get(s.Start(facts, nil))(t)
		r.Begin()
		must.Do(t, r.End(t.Context(), "."))
		recordings = append(recordings, r)
	}
	if err := s.export(t.Context()); !errors.Is(err, errConflict) {
		t.Errorf("the export: %v", err)
	}
	h.exported(ids[1])
	if _, err := os.Stat(recordings[0].path); err != nil {
		t.Errorf("the file of the conflict: %v", err)
	}
	_ = s.lock.Close()
}

// TestFailedSyncEndsRecording lets the disk fail. Input that is not durable is not forwarded.
func TestFailedSyncEndsRecording(t *testing.T) {
	h := newHarness(t)
	var broken atomic.Bool
	h.change = func(o *Options) {
		o.sync = func(file *os.File) error {
			if broken.Load() {
				return io.ErrUnexpectedEOF
			}
			return disk.SyncData(file)
		}
	}
	s, _ := h.run()
	r := h.start(s)
	h.take(r, true, "\x00before")
	broken.Store(true)
	if _, err := r.Take(v5, true, []byte("\x00after")); apierror.KindOf(err) != apierror.Unavailable || !strings.Contains(apierror.As(err).Message, "the disk") {
		t.Errorf("the failed sync: %v", err)
	}
	<-r.Failed()
	if _, err := s.Start(newFacts(), nil); err == nil {
		t.Error("another recording begins")
	}
	broken.Store(false)
	if err := r.End(t.Context(), "failed"); err == nil {
		t.Error("the end returns no failure")
	}
	if input, _, d := h.exported(r.facts.ID); input != "before" || d.Complete || d.End.Reason != "failed" {
		t.Errorf("input %q, %+v", input, d)
	}
	h.empty(s)
}

// TestFullDiskEndsRecording fills the disk. Nothing that the recording lacks was accepted, and it continues to be readable.
func TestFullDiskEndsRecording(t *testing.T) {
	smalldisk.Run(t, 8<<20, func(t *testing.T, dir string) {
		h := newHarness(t)
		h.dir = filepath.Join(dir, "recordings")
		s, _ := h.run()
		r := h.start(s)
		h.take(r, true, "\x00before")
		filler := smalldisk.Fill(t, dir)
		var err error
		taken := 0
		for ; err == nil && taken < 1000; taken++ {
			_, err = r.Take(v5, false, append([]byte{channelStdout}, bytes.Repeat([]byte("x"), 20_000)...))
		}
		if apierror.KindOf(err) != apierror.Unavailable || !strings.Contains(apierror.As(err).Message, "the disk of the session gateway is full") {
			t.Errorf("after %d messages: %v", taken, err)
		}
		if err := s.Available(); apierror.KindOf(err) != apierror.Unavailable {
			t.Errorf("another recording: %v", err)
		}
		if err := r.End(t.Context(), "full"); err == nil {
			t.Error("the end returns no failure")
		}
		input, output, d := h.exported(r.facts.ID)
		if input != "before" || len(output) < (taken-1)*20_000 || len(output) > taken*20_000 || d.End.Reason != "full" {
			t.Errorf("input %q, %d bytes of output after %d messages, %+v", input, len(output), taken, d)
		}
		h.empty(s)
		must.Do(t, os.Remove(filler))
		if err := s.Available(); err != nil {
			t.Error(err)
		}
	})
}

// FuzzMessages takes arbitrary messages of both sides. What was accepted is in the recording, in its order.
func FuzzMessages(f *testing.F) {
	for _, message := range []string{"", "\x00ls\r", "\x01caf\xc3", "\x01\xa9", "\x02x", "\x03{}", "\x04" + `{"Width":80,"Height":24}`, "\x05x", "\xff\x00", "\xfe"} {
		for _, protocol := range []string{v4, v5} {
			f.Add(protocol, true, []byte(message), []byte("\x00\xc3"))
			f.Add(protocol, false, []byte(message), []byte("\x01\xa9"))
		}
	}
	public, private, err := seal.NewPair()
	if err != nil {
		f.Fatal(err)
	}
	signing, signers := newSigning(f)
	dir := f.TempDir()
	s, err := Open(Options{Dir: dir, Sink: sink.FileAt(dir), Index: &memoryIndex{}, Keys: public, Signing: signing, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		sync: func(*os.File) error { return nil }})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.lock.Close() })
	f.Fuzz(func(t *testing.T, protocol string, client bool, first, second []byte) {
		r := must.Get(s.Start(newFacts(), nil))(t)
		var input, output []byte
		for _, message := range [][]byte{first, second} {
			forwarded, err := r.Take(protocol, client, message)
			if err != nil || len(forwarded) == 0 {
				continue
			}
			switch {
			case protocol != v4 && protocol != v5, protocol == v4 && message[0] == channelClose, len(forwarded) > 64 && message[0] >= channelResize:
				t.Fatalf("%q is forwarded over %q", forwarded, protocol)
			case client && message[0] == channelStdin:
				input = append(input, message[1:]...)
			case !client && message[0] == channelStdout:
				output = append(output, message[1:]...)
			case client && message[0] < channelResize, !client && message[0] == channelStdin:
				t.Fatalf("a message on channel %d was accepted", message[0])
			}
		}
		must.Do(t, r.End(t.Context(), "."))
		content, err := os.ReadFile(r.path)
		must.Do(t, errors.Join(err, os.Remove(r.path)))
		s.forget(r, r.size, false)
		h := &harness{t: t, private: private, signers: signers}
		gotInput, gotOutput, _ := h.read(content)
		if client && len(output) == 0 && gotInput != strings.ToValidUTF8(string(input), "\ufffd") && !invalid(input) {
			t.Errorf("the input is %q, want %q", gotInput, input)
		}
		if !client && second != nil && first != nil && len(first) > 0 && len(second) > 0 && first[0] == channelStdout && second[0] == channelStdout && gotOutput != string(output) && !invalid(output) {
			t.Errorf("the output is %q, want %q", gotOutput, output)
		}
	})
}

// invalid reports whether bytes are not UTF-8.
func invalid(content []byte) bool { return string(content) != strings.ToValidUTF8(string(content), "") }
