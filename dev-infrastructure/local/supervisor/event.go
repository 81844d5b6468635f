package supervisor

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// EventType is what happened to a process.
type EventType string

// The types of events.
const (
	// EventStarted: the process was started.
	EventStarted EventType = "Started"
	// EventReady: the readiness probe succeeded after it had failed, or for the first time.
	EventReady EventType = "Ready"
	// EventNotReady: the readiness probe of a ready process failed.
	EventNotReady EventType = "NotReady"
	// EventHung: the liveness probe failed repeatedly, and the process is killed.
	EventHung EventType = "Hung"
	// EventRestarting: a restart was requested.
	EventRestarting EventType = "Restarting"
	// EventExited: the process terminated.
	EventExited EventType = "Exited"
	// EventFailed: the process could not be started.
	EventFailed EventType = "Failed"
)

// Event is one event of a process.
type Event struct {
	Time    time.Time `json:"time"`
	Process string    `json:"process"`
	Type    EventType `json:"type"`
	Pid     int       `json:"pid,omitempty"`
	// ExitCode and Signal are how the process terminated: one of them, for EventExited.
	ExitCode *int   `json:"exitCode,omitempty"`
	Signal   string `json:"signal,omitempty"`
	// Message is the reason.
	Message string `json:"message,omitempty"`
}

const (
	// eventsName is the name of the file with the events in the folder of the logs.
	eventsName = "events.jsonl"
	// maxEventsSize bounds the file in bytes. When it is larger, it is renamed to events.jsonl.1.
	maxEventsSize = 1 << 20
	// maxEvents bounds the events in memory, which are available while the disk is full.
	maxEvents = 1000
)

// eventLog writes the events of all processes to a file with one JSON object per line, and keeps the latest ones. It is safe for
// concurrent use.
type eventLog struct {
	path string

	mu     sync.Mutex
	file   *os.File
	size   int64
	latest []Event
}

func openEvents(dir string) (*eventLog, error) {
	l := &eventLog{path: filepath.Join(dir, eventsName)}
	var err error
	if l.latest, err = ReadEvents(dir); err != nil {
		return nil, err
	}
	return l, l.open()
}

func (l *eventLog) open() error {
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return fmt.Errorf("opening the log of events: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.file, l.size = file, info.Size()
	return nil
}

// record stores an event. If the file cannot be written, the event is kept in memory only.
func (l *eventLog) record(e Event) {
	e.Time = time.Now().UTC()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = append(l.latest, e)
	if excess := len(l.latest) - maxEvents; excess > 0 {
		l.latest = append(l.latest[:0], l.latest[excess:]...)
	}
	line, err := json.Marshal(e)
	if err != nil || l.file == nil {
		return
	}
	if l.size > maxEventsSize {
		_ = l.file.Close()
		l.file = nil
		if os.Rename(l.path, l.path+".1") != nil || l.open() != nil {
			return
		}
	}
	n, _ := l.file.Write(append(line, '\n'))
	l.size += int64(n)
}

// events returns the latest events, the oldest first.
func (l *eventLog) events() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Event(nil), l.latest...)
}

func (l *eventLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}

// ReadEvents returns the latest events in the folder of the logs, the oldest first. It returns none if there is no such file.
func ReadEvents(logDir string) ([]Event, error) {
	var events []Event
	for _, name := range []string{eventsName + ".1", eventsName} {
		data, err := os.ReadFile(filepath.Join(logDir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the log of events: %w", err)
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, maxEventsSize)
		for lines.Scan() {
			var e Event
			// A line can be incomplete: the disk was full, or the supervisor was killed.
			if json.Unmarshal(lines.Bytes(), &e) == nil && e.Process != "" {
				events = append(events, e)
			}
		}
	}
	return events[max(0, len(events)-maxEvents):], nil
}
