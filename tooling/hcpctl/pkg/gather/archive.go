package gather

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"time"

	"sigs.k8s.io/yaml"
)

// The limits of an archive.
const (
	mostBytesPerFile = 8 << 20
	mostBytes        = 256 << 20
)

// Entry describes a file of the archive, or an item that is missing.
type Entry struct {
	// Path is the path in the archive; empty if the item is missing.
	Path string `json:"path,omitempty"`
	// From is the source of the item.
	From  string `json:"from"`
	Bytes int    `json:"bytes,omitempty"`
	// Error is the reason why the item is missing or incomplete.
	Error string `json:"error,omitempty"`
}

// Index describes the archive. It is the last file.
type Index struct {
	Cluster string    `json:"cluster"`
	TakenAt time.Time `json:"takenAt"`
	// Removed states what the archive never contains.
	Removed string  `json:"removed"`
	Entries []Entry `json:"entries"`
}

// archive writes a tar.gz. All content passes add or text, which remove secrets.
type archive struct {
	folder string
	at     time.Time
	gzip   *gzip.Writer
	tar    *tar.Writer
	index  Index
	total  int
	err    error
}

func newArchive(out io.Writer, folder string, index Index) *archive {
	compressed := gzip.NewWriter(out)
	return &archive{folder: folder, at: index.TakenAt, gzip: compressed, tar: tar.NewWriter(compressed), index: index}
}

// add writes a value as YAML, or as JSON if the name has that extension.
func (a *archive) add(name, from string, value any) {
	decoded, err := plain(value)
	if err != nil {
		a.missing(from, fmt.Errorf("%s: %w", name, err))
		return
	}
	decoded = Clean(decoded)
	var data []byte
	if path.Ext(name) == ".json" {
		data, err = json.MarshalIndent(decoded, "", "  ")
		data = append(data, '\n')
	} else {
		data, err = yaml.Marshal(decoded)
	}
	if err != nil {
		a.missing(from, fmt.Errorf("%s: %w", name, err))
		return
	}
	a.write(name, from, data)
}

// text writes a text file.
func (a *archive) text(name, from, text string) { a.write(name, from, []byte(cleanText(text))) }

// missing records an item that could not be collected.
func (a *archive) missing(from string, err error) {
	a.index.Entries = append(a.index.Entries, Entry{From: from, Error: cleanText(err.Error())})
}

func (a *archive) write(name, from string, data []byte) {
	entry := Entry{Path: name, From: from, Bytes: len(data)}
	if len(data) > mostBytesPerFile {
		entry.Error = fmt.Sprintf("has %d bytes, of which the last %d are here", len(data), mostBytesPerFile)
		data = data[len(data)-mostBytesPerFile:]
		entry.Bytes = len(data)
	}
	if a.total+len(data) > mostBytes {
		a.index.Entries = append(a.index.Entries, Entry{From: from, Error: fmt.Sprintf("%s was left out: the archive would have more than %d bytes", name, mostBytes)})
		return
	}
	a.total += len(data)
	a.put(name, data)
	a.index.Entries = append(a.index.Entries, entry)
}

func (a *archive) put(name string, data []byte) {
	if a.err != nil {
		return
	}
	a.err = a.tar.WriteHeader(&tar.Header{Name: a.folder + "/" + name, Mode: 0o600, Size: int64(len(data)), ModTime: a.at})
	if a.err == nil {
		_, a.err = a.tar.Write(data)
	}
}

// close writes the index and finishes the archive.
func (a *archive) close() (Index, error) {
	data, err := json.MarshalIndent(a.index, "", "  ")
	if err != nil {
		return a.index, err
	}
	a.put("index.json", append(data, '\n'))
	for _, finish := range []func() error{a.tar.Close, a.gzip.Close} {
		if err := finish(); a.err == nil {
			a.err = err
		}
	}
	return a.index, a.err
}
