package app

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	clientexec "k8s.io/client-go/util/exec"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/recorder"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/entra/entratest"
	format "github.com/hcpmesh/hcpmesh/internal/recording"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
)

// recorded is a recording that has ended.
type recorded struct {
	database.AccessRecordingDocument
	header        format.Header
	events        []format.Event
	input, output string
	markers       []string
}

// recordingsOf waits until a number of recordings of a session have ended, and reads them from the sink, in the order of their start.
func (r *region) recordingsOf(session string, count int) []recorded {
	r.t.Helper()
	var documents []database.AccessRecordingDocument
	eventually.Soon(r.t, fmt.Sprintf("%d recordings are exported", count), func() error {
		documents = nil
		ended := 0
		err := r.db.EachAccessRecording(r.t.Context(), database.AccessRecordingFilter{ClusterUID: clusterUID, SessionID: session}, func(d *database.AccessRecordingDocument) error {
			documents = append(documents, *d)
			if d.EndTime != nil {
				ended++
			}
			return nil
		})
		if err == nil && (len(documents) != count || ended != count) {
			err = fmt.Errorf("%d of %d have ended", ended, len(documents))
		}
		return err
	})

	slices.SortFunc(documents, func(a, b database.AccessRecordingDocument) int { return a.StartTime.Compare(b.StartTime) })
	var all []recorded
	for _, d := range documents {
		all = append(all, r.readRecording(d))
	}
	return all
}

func (r *region) readRecording(d database.AccessRecordingDocument) recorded {
	r.t.Helper()
	log := must.Get(os.ReadFile(filepath.Join(r.recorded, format.LogName(d.RecordingID)+".jsonl")))(r.t)
	reader := must.Get(format.NewReader(bytes.NewReader(log), r.reading, r.recordingSigners))(r.t)
	var text bytes.Buffer
	must.Do(r.t, reader.WriteAsciicast(&text))
	found := recorded{AccessRecordingDocument: d}
	for i, line := range slices.Collect(bytes.Lines(text.Bytes())) {
		if i == 0 {
			found.header = must.Get(format.ParseHeader(line))(r.t)
			continue
		}
		e := must.Get(format.ParseEvent(line))(r.t)
		found.events = append(found.events, e)
		switch e.Code {
		case format.Input:
			found.input += e.Data
		case format.Output:
			found.output += e.Data
		case format.Marker:
			found.markers = append(found.markers, e.Data)
		}
	}
	if facts := reader.Facts(); facts.ID != d.RecordingID || facts.Pod != d.Pod || d.Complete != (reader.End() != nil) || int64(len(log)) != d.Bytes {
		r.t.Errorf("the log has %+v, %d bytes and the end %v, its description is %+v", facts, len(log), reader.End(), d)
	}
	return found
}

// TestCommandIsRecorded types into a command. The recording has exactly that and what was printed, the time, the size and the command. Neither the audit, the
// log, the description nor the disk has any of it in clear text. A forwarded port and a refused command are not recorded.
func TestCommandIsRecorded(t *testing.T) {
	t.Parallel()
	r, g, _ := readyAdmin(t, nil)
	r.handle(func(w http.ResponseWriter, request *http.Request) { w.WriteHeader(http.StatusNotFound) })
	if _, response, err := g.webSocket(execPath, remoteCommand); err == nil || response.StatusCode != http.StatusNotFound {
		t.Fatalf("%v: %v", response, err)
	}
	port := g.opened(alicePath+"/api/v1/namespaces/default/pods/a/portforward", portForward)
	_ = port.Close()
	r.handle(echo(remoteCommand))
	connection, response := g.dial(alicePath+"/api/v1/namespaces/default/pods/a/exec?command=login&command=--password=s3cret&container=main&tty=true&stdin=true", remoteCommand)
	must.Do(t, connection.WriteMessage(websocket.BinaryMessage, []byte("\x04"+`{"Width":132,"Height":43}`)))
	if _, _, err := connection.ReadMessage(); err != nil { // the API server of the test repeats it as output
		t.Fatal(err)
	}
	for _, typed := range []string{"hunter2", "\r", "\x1b[A", "caf\xc3", "\xa9"} {
		must.Do(t, connection.WriteMessage(websocket.BinaryMessage, []byte("\x00"+typed)))
		if _, content, err := connection.ReadMessage(); err != nil || string(content) != "\x01"+typed {
			t.Fatalf("%q: %v", content, err)
		}
	}
	must.Do(t, connection.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Time{}))
	_, _, _ = connection.ReadMessage()
	found := r.recordingsOf(aliceSession, 1)[0]
	const typed = "hunter2\r\x1b[Acafé"
	if found.input != typed || found.output != `{"Width":132,"Height":43}`+typed || !found.Complete {
		t.Errorf("input %q, output %q, complete: %t", found.input, found.output, found.Complete)
	}
	if want := (format.Header{Version: 2, Width: 132, Height: 43, Timestamp: found.StartTime.Unix(), Title: "exec default/a -c main -- login --password=s3cret"}); found.header != want {
		t.Errorf("the header is %+v, want %+v", found.header, want)
	}
	if !slices.IsSortedFunc(found.events, func(a, b format.Event) int { return int(a.Time - b.Time) }) || found.events[0].Data != "132x43" {
		t.Errorf("the events are %+v", found.events)
	}
	want := database.AccessRecordingDocument{RecordingID: response.Header.Get("X-Request-Id"), SessionID: aliceSession, ClusterUID: clusterUID, ResourceID: resourceID, Name: "alice@example.com", ObjectID: "alice",
		TenantID: "tenant", Reason: "it is slow", Ticket: "INC-1", Kind: "pods/exec", Namespace: "default", Pod: "a", Container: "main", TTY: true, StartTime: found.StartTime, Bytes: found.Bytes,
		EndTime: found.EndTime, EndReason: "The client has closed the connection.", Complete: true}
	if diff := cmp.Diff(want, found.AccessRecordingDocument); diff != "" {
		t.Error(diff)
	}
	g.stop()
	log := must.Get(os.ReadFile(filepath.Join(r.recorded, format.LogName(found.RecordingID)+".jsonl")))(t)
	records := fmt.Sprint(r.trail.Records(t))
	for name, content := range map[string]string{"the log of the process": r.log.String(), "the audit": records, "the file": string(log), "the description": fmt.Sprint(found.AccessRecordingDocument)} {
		for _, secret := range []string{"hunter2", "s3cret", "login"} {
			if strings.Contains(content, secret) {
				t.Errorf("%s has %q: %s", name, secret, content)
			}
		}
	}
	if !strings.Contains(records, found.RecordingID) {
		t.Error("the audit does not have the ID of the recording")
	}
	if files, err := os.ReadDir(r.recorded); err != nil || len(files) != 1 {
		t.Errorf("the sink has %v: %v", files, err)
	}
}

// TestUnrecordableMessageEndsCommand sends messages that the gateway does not understand. They are not forwarded.
func TestUnrecordableMessageEndsCommand(t *testing.T) {
	t.Parallel()
	r, g, _ := readyAdmin(t, nil)
	for name, message := range map[string]string{"a channel of the API server": "\x01x", "an unknown channel": "\x07x", "another encoding": "0eA=="} {
		for _, protocol := range []string{remoteCommand, channels} {
			t.Run(name+"/"+protocol[:2], func(t *testing.T) {
				ended := make(chan error, 1)
				r.handle(readOnce(protocol, ended))
				connection, _ := g.dial(execPath, protocol)
				must.Do(t, connection.WriteMessage(websocket.TextMessage, []byte(message)))
				var closed *websocket.CloseError
				if _, _, err := connection.ReadMessage(); !errors.As(err, &closed) || !strings.Contains(closed.Text, "cannot be recorded") {
					t.Errorf("the connection ended with %v", err)
				}
				if err := <-ended; !websocket.IsCloseError(err, websocket.CloseGoingAway) {
					t.Errorf("the API server got %v", err)
				}
			})
		}
	}
}

// TestOlderProtocolIsRecorded runs a command of a client that has only v4.channel.k8s.io. The API server is a node that shows output on the channel on which
// v5.channel.k8s.io closes others, and that repeats whatever it gets. Neither side gets a message that the recording does not have.
func TestOlderProtocolIsRecorded(t *testing.T) {
	t.Parallel()
	r, g, _ := readyAdmin(t, nil)
	r.handle(upgraded(channels, func(server *websocket.Conn) {
		for {
			kind, content, err := server.ReadMessage()
			if err != nil {
				return
			}
			for _, message := range []string{"\xffhidden", "\xff\x01", "", "\x01" + string(content)} {
				if server.WriteMessage(kind, []byte(message)) != nil {
					return
				}
			}
		}
	}))
	connection, _ := g.dial(execPath, channels)
	for _, message := range []string{"\xff\x00", "\xffhidden", "\xff", "", "\x04hidden", "\x00typed\n"} {
		must.Do(t, connection.WriteMessage(websocket.BinaryMessage, []byte(message)))
	}
	if _, content, err := connection.ReadMessage(); err != nil || string(content) != "\x01\x00typed\n" {
		t.Errorf("the client got %q: %v", content, err)
	}
	must.Do(t, connection.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Time{}))
	if _, content, err := connection.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("the client got %q: %v", content, err)
	}
	if found := r.recordingsOf(aliceSession, 1)[0]; found.input != "typed\n" || found.output != "\x00typed\n" || !found.Complete || found.EndReason != "The client has closed the connection." {
		t.Errorf("input %q, output %q, complete: %t, %s", found.input, found.output, found.Complete, found.EndReason)
	}
}

// TestFullDiskEndsCommands fills the disk of recordings during a command. It ends with the reason, a new one gets a Status, also over SPDY, to which
// kubectl falls back, and the API server gets neither the last message nor another request. Reads and forwarded ports continue.
func TestFullDiskEndsCommands(t *testing.T) {
	smalldisk.Run(t, 8<<20, func(t *testing.T, dir string) {
		r := newRegion(t)
		r.recordings = func(o *recorder.Options) { o.Dir = filepath.Join(dir, "recordings") }
		g, _ := r.opened(aliceSession, "alice", asAdmin)
		connection := g.opened(execPath, remoteCommand)
		filler := smalldisk.Fill(t, dir)
		var closed *websocket.CloseError
		for sent := 0; closed == nil; sent++ {
			must.Do(t, connection.WriteMessage(websocket.BinaryMessage, append([]byte{0}, bytes.Repeat([]byte("x"), 32<<10)...)))
			if _, _, err := connection.ReadMessage(); err != nil && !errors.As(err, &closed) || sent == 100 {
				t.Fatalf("after %d messages: %v", sent, err)
			}
		}
		if closed.Code != websocket.ClosePolicyViolation || !strings.Contains(closed.Text, "cannot be recorded: the disk of the session gateway is full or away.") {
			t.Errorf("the connection ended with %v", closed)
		}
		_ = connection.Close()
		before := len(r.arrived())
		for method, upgrade := range map[string]string{http.MethodGet: "websocket", http.MethodPost: "SPDY/3.1"} {
			response, body := g.send(method, "alice", execPath, "", "Connection", "Upgrade", "Upgrade", upgrade, "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==",
				"Sec-WebSocket-Protocol", remoteCommand)
			if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(message(t, body), "The request cannot be recorded") || response.Header.Get("Retry-After") == "" {
				t.Errorf("%s: %d: %s", upgrade, response.StatusCode, body)
			}
		}
		if len(r.arrived()) != before {
			t.Error("a command that is not recorded reached the API server")
		}
		g.opened(alicePath+"/api/v1/namespaces/default/pods/a/portforward", portForward)
		r.handle(nil)
		if response, body := g.send(http.MethodGet, "alice", alicePath+"/api/v1/pods", ""); response.StatusCode != http.StatusOK {
			t.Errorf("a read: %d: %s", response.StatusCode, body)
		}
		if found := r.recordingsOf(aliceSession, 1)[0]; !strings.HasPrefix(found.output, "hello") || !strings.Contains(found.EndReason, "cannot be recorded") {
			t.Errorf("the recording has %d bytes of output and ended because %s", len(found.output), found.EndReason)
		}
		must.Do(t, os.Remove(filler))
		_ = g.opened(execPath, remoteCommand).Close()
	})
}

// TestLimitEndsCommands exceeds the limit of one recording.
func TestLimitEndsCommands(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.recordings = func(o *recorder.Options) { o.MaxBytes = recorder.MinTotal }
	g, _ := r.opened(aliceSession, "alice", asAdmin)
	r.handle(upgraded(remoteCommand, printForever))
	connection, _ := g.dial(execPath, remoteCommand)
	shown := 0
	for {
		_, content, err := connection.ReadMessage()
		if err == nil {
			shown += len(content) - 1
			continue
		}
		var closed *websocket.CloseError
		if !errors.As(err, &closed) || !strings.Contains(closed.Text, "1048576 bytes") {
			t.Errorf("the connection ended with %v", err)
		}
		break
	}
	if found := r.recordingsOf(aliceSession, 1)[0]; len(found.output) < shown || shown == 0 || !found.Complete {
		t.Errorf("the recording has %d bytes, %d were shown, complete: %t", len(found.output), shown, found.Complete)
	}
}

// terminal returns both ends of a pseudoterminal with a size.
func terminal(t *testing.T, columns, rows uint16) (controller, tty *os.File) {
	t.Helper()
	controller, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("the machine has no pseudoterminals: %v", err)
	}
	t.Cleanup(func() { _ = controller.Close() })
	number, err := unix.IoctlGetInt(int(controller.Fd()), unix.TIOCGPTN)
	must.Do(t, errors.Join(err, unix.IoctlSetPointerInt(int(controller.Fd()), unix.TIOCSPTLCK, 0)))
	tty = must.Get(os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0))(t)
	t.Cleanup(func() { _ = tty.Close() })
	must.Do(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}))
	return controller, tty
}

// TestKubectlIsRecorded runs commands and an attachment with the real kubectl against a real API server, also on a terminal. Each recording has
// what was typed and shown, and the exit code.
func TestKubectlIsRecorded(t *testing.T) {
	t.Parallel()
	const session, engineer = "a0000000-0000-4000-8000-0000000000f1", "recorded"
	r := newHostedRegion(t)
	k := r.runKubelet("recorded")
	g, _ := r.opened(session, engineer, asAdmin)
	run := func(stdin string, arguments ...string) string {
		t.Helper()
		command := r.kubectl(g.url, session, engineer, arguments...)
		command.Stdin = strings.NewReader(stdin)
		out, err := command.Output()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out)
	}
	attached := run("attached\n", "attach", "-i", "recorded")
	typed := run("first\nsecond\n", "exec", "-i", "recorded", "--", "cat")
	failed := run("", "exec", "recorded", "--", "sh", "-c", "echo printed; exit 7")

	controller, tty := terminal(t, 101, 37)
	command := r.kubectl(g.url, session, engineer, "exec", "-it", "recorded", "--", "cat")
	command.Stdin, command.Stdout, command.Stderr = tty, tty, tty
	must.Do(t, command.Start())
	<-k.started // the command
	shown := bufio.NewReader(controller)
	await := func(want string) {
		t.Helper()
		for {
			line, err := shown.ReadString('\n')
			if err != nil {
				t.Fatalf("%q is not shown: %v", want, err)
			}
			if strings.Contains(line, want) {
				return
			}
		}
	}
	await("101 columns") // what the kubelet of the test prints
	must.Get(io.WriteString(controller, "on a terminal\n"))(t)
	await("on a terminal")
	must.Do(t, command.Process.Kill())
	_ = command.Wait()

	found := r.recordingsOf(session, 4)
	for i, want := range []struct{ title, input, output string }{
		{"attach default/recorded", "attached\n", attached}, {"exec default/recorded -c main -- cat", "first\nsecond\n", typed},
		{`exec default/recorded -c main -- sh -c "echo printed; exit 7"`, "", failed}, {"exec default/recorded -c main -- cat", "on a terminal\n", "101 columns\non a terminal\n"},
	} {
		one := found[i]
		if !strings.HasPrefix(one.header.Title, want.title) || one.input != want.input || one.output != want.output || !one.Complete || want.output == "" {
			t.Errorf("%s: input %q, output %q, complete: %t, want %+v", one.header.Title, one.input, one.output, one.Complete, want)
		}
	}
	if markers := strings.Join(found[2].markers, "\n"); !strings.Contains(markers, `"ExitCode","message":"7"`) {
		t.Errorf("the markers are %s", markers)
	}
	if last := found[3]; !last.TTY || last.header.Width != 101 || last.header.Height != 37 {
		t.Errorf("the recording of the terminal has the header %+v", last.header)
	}
	g.stop()
	for _, record := range r.trail.Records(t) {
		if strings.Contains(fmt.Sprint(record), "printed") {
			t.Errorf("the audit has a command: %+v", record)
		}
	}
}

// TestClientsWithOlderProtocol runs a command with a WebSocket client of client-go that offers one version, against a real API server and the implementation of
// kubelets. Output and exit code arrive, and the recordings of both versions are the same. A port is forwarded with the older version, too.
func TestClientsWithOlderProtocol(t *testing.T) {
	t.Parallel()
	const session, engineer = "a0000000-0000-4000-8000-0000000000f4", "older"
	r := newHostedRegion(t)
	r.listen = nil
	r.runKubelet("older")
	g, _ := r.opened(session, engineer, asAdmin)
	pod := g.url + "/sessions/" + session + "/kas/api/v1/namespaces/default/pods/older"
	versions := []string{remoteCommand, channels}
	for _, version := range versions {
		query := url.Values{"container": {"main"}, "command": {"sh", "-c", `read line; echo "shown: $line"; exit 7`}, "stdin": {"true"}, "stdout": {"true"}, "stderr": {"true"}}
		executor, err := remotecommand.NewWebSocketExecutorForProtocols(&rest.Config{Host: g.url, BearerToken: engineer}, http.MethodGet, pod+"/exec?"+query.Encode(), version)
		if err != nil {
			t.Fatal(err)
		}
		var shown, failed bytes.Buffer
		err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("typed\n"), Stdout: &shown, Stderr: &failed})
		var exit clientexec.CodeExitError
		if !errors.As(err, &exit) || exit.Code != 7 || shown.String() != "shown: typed\n" || failed.Len() != 0 {
			t.Errorf("%s: %q, %q: %v", version, &shown, &failed, err)
		}
	}
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "behind the pod") }))
	defer target.Close()
	port := target.Listener.Addr().(*net.TCPAddr).Port
	dialer := websocket.Dialer{Subprotocols: []string{channels}}
	connection, _, err := dialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(pod, "http")+"/portforward?ports="+strconv.Itoa(port), http.Header{"Authorization": {"Bearer " + engineer}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	must.Do(t, connection.WriteMessage(websocket.BinaryMessage, []byte("\x00GET / HTTP/1.0\r\n\r\n")))
	var received []byte
	for !bytes.Contains(received, []byte("behind the pod")) {
		_, content, err := connection.ReadMessage()
		if err != nil {
			t.Fatalf("%q: %v", received, err)
		}
		if content[0] == 0 {
			received = append(received, content[1:]...)
		}
	}
	if want := binary.LittleEndian.AppendUint16(nil, uint16(port)); !bytes.HasPrefix(received, want) {
		t.Errorf("the channel begins with %q, want %q", received[:2], want)
	}

	for i, found := range r.recordingsOf(session, len(versions)) {
		if found.header.Title != `exec default/older -c main -- sh -c "read line; echo \"shown: $line\"; exit 7"` || found.input != "typed\n" || found.output != "shown: typed\n" || !found.Complete ||
			!strings.Contains(strings.Join(found.markers, "\n"), `"ExitCode","message":"7"`) {
			t.Errorf("%s: %s: input %q, output %q, markers %q, complete: %t", versions[i], found.header.Title, found.input, found.output, found.markers, found.Complete)
		}
	}
}

// TestKubectlPrintsWhyNothingIsRecorded removes the folder of recordings. The real kubectl prints the reason although it falls back to SPDY.
func TestKubectlPrintsWhyNothingIsRecorded(t *testing.T) {
	t.Parallel()
	const session, engineer = "a0000000-0000-4000-8000-0000000000f2", "unrecorded"
	r := newHostedRegion(t)
	dir := t.TempDir()
	r.recordings = func(o *recorder.Options) { o.Dir = filepath.Join(dir, "recordings") }
	r.createPod("unrecorded")
	g, _ := r.opened(session, engineer, asAdmin)
	must.Do(t, os.RemoveAll(filepath.Join(dir, "recordings")))
	if out, err := r.kubectl(g.url, session, engineer, "exec", "unrecorded", "--", "id").CombinedOutput(); err == nil || !strings.Contains(string(out), "The request cannot be recorded: the disk of the session gateway is full or away.") {
		t.Errorf("kubectl exec: %s%v", out, err)
	}
}

// TestRecordingSurvivesKill kills the program while the real kubectl runs a command. The next process exports the recording with everything that the
// command has repeated, and states that it was interrupted.
func TestRecordingSurvivesKill(t *testing.T) {
	t.Parallel()
	const session, engineer, lines = "a0000000-0000-4000-8000-0000000000f3", "killed", 20
	r := newHostedRegion(t)
	p := newProgram(t, r, engineer)
	r.cluster(nil)
	r.issue(session, r.request(session, engineer, func(v *database.AccessSessionDocument) { v.Owner.TenantID, v.Mode = entratest.Tenant, "admin" }), 15*time.Minute)
	k := r.runKubelet("killed")
	p.start()
	eventually.Soon(t, "the program serves the session", func() error {
		response, err := p.send(t.Context(), session, http.MethodGet, "/api/v1/namespaces/default", "")
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			err = errors.New(response.Status)
		}
		return err
	})

	command := r.kubectl(p.url, session, p.token, "exec", "-i", "killed", "--", "cat")
	input := must.Get(command.StdinPipe())(t)
	output := must.Get(command.StdoutPipe())(t)
	must.Do(t, command.Start())
	<-k.started // the command
	shown, want := bufio.NewReader(output), ""
	for i := range lines {
		line := fmt.Sprintf("line %d\n", i)
		must.Get(io.WriteString(input, line))(t)
		if got, err := shown.ReadString('\n'); err != nil || got != line {
			t.Fatalf("%q: %v: %s", got, err, r.log)
		}
		want += line
	}
	_ = p.process.Signal(syscall.SIGKILL)
	<-p.process.Exited()
	_ = input.Close()
	_ = command.Wait()
	p.start()
	found := r.recordingsOf(session, 1)[0]
	if found.input != want || found.output != want || found.Complete || found.EndReason != "The session gateway was interrupted." {
		t.Errorf("input %q, output %q, complete: %t, %s", found.input, found.output, found.Complete, found.EndReason)
	}
	if err := errors.Join(p.process.Signal(syscall.SIGTERM), p.process.Err()); err != nil {
		t.Fatalf("the program ended with %v: %s", err, r.log)
	}
}
