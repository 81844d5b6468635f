package logforwarder

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// The reasons of poisoned records.
const (
	reasonNotJSON  = "not_json"
	reasonTooLarge = "too_large"
	reasonRefused  = "refused"
)

const (
	// PoisonFile is the name of the poison box in the state folder of a control plane. The older part of the box has the suffix .1.
	PoisonFile = "poison.jsonl"
	// poisonBytes is the size at which the box begins another file. It keeps one older file.
	poisonBytes = 4 << 20
	// poisonContent is the number of bytes of a line that the box keeps.
	poisonContent = 4 << 10
)

// Poisoned is an entry of a poison box: a line that will not be delivered.
type Poisoned struct {
	Time time.Time `json:"time"`
	// Category and Setting identify the stream, and Account its destination.
	Category string `json:"category"`
	Setting  string `json:"setting"`
	Account  string `json:"account"`
	Reason   string `json:"reason"`
	// Bytes is the size of the line, SHA256 its hash, and Content its beginning.
	Bytes   int    `json:"bytes"`
	SHA256  string `json:"sha256"`
	Content []byte `json:"content"`
}

// keep stores the line in the entry.
func (p *Poisoned) keep(line []byte) {
	p.Bytes, p.SHA256, p.Content = len(line), fmt.Sprintf("%x", sha256.Sum256(line)), line[:min(len(line), poisonContent)]
}

// addPoison stores an entry durably in the box of a control plane's state folder. limit is the size in bytes at which the box begins another file.
// discarded reports whether older entries were removed.
func addPoison(dir string, entry Poisoned, limit int64) (discarded bool, err error) {
	line, err := json.Marshal(entry)
	if err != nil {
		return false, err
	}
	path := filepath.Join(dir, PoisonFile)
	if info, err := os.Stat(path); err == nil && info.Size() >= limit {
		_, err := os.Stat(path + ".1")
		discarded = err == nil
		if err := os.Rename(path, path+".1"); err != nil {
			return false, fmt.Errorf("rotating the poison box: %w", err)
		}
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return false, fmt.Errorf("opening the poison box: %w", err)
	}
	// A write that a full disk cuts off is ended, so that the next entry is a line of its own.
	if _, err = file.Write(append(line, '\n')); err != nil {
		_, _ = file.Write([]byte("\n"))
	}
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return false, fmt.Errorf("writing to the poison box: %w", err)
	}
	return discarded, nil
}
