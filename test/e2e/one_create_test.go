package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// documentedRecord is a log record that docs/developers/one-create.md shows: a process, a message and keys.
type documentedRecord struct {
	process, message string
	keys             []string
}

// recordsLimit bounds the wait for a log record, which a process writes shortly after the fact.
const recordsLimit = time.Minute

// documentedLine matches a line of the page such as "    frontend  request handled  method=PUT status=201".
var documentedLine = regexp.MustCompile(`^ {4}([a-z-]+)  +(\S(?:.*?\S)?)  +(([a-z_]+=\S*(?: |$))+)$`)

// requireDocumentedRecords checks that a create has produced every log record of docs/developers/one-create.md: a record of that
// process with that message and at least these keys.
func requireDocumentedRecords(t *testing.T) {
	t.Helper()
	page := must.Get(os.ReadFile(filepath.Join("..", "..", "docs", "developers", "one-create.md")))(t)
	var records []documentedRecord
	for line := range strings.SplitSeq(string(page), "\n") {
		match := documentedLine.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		record := documentedRecord{process: match[1], message: match[2]}
		for pair := range strings.FieldsSeq(match[3]) {
			key, _, _ := strings.Cut(pair, "=")
			record.keys = append(record.keys, key)
		}
		records = append(records, record)
	}
	if len(records) < 5 {
		t.Fatalf("the page shows %d log records, want at least 5", len(records))
	}
	for _, record := range records {
		eventually.Before(withTimeout(t, recordsLimit), t, fmt.Sprintf("%s logs %q", record.process, record.message), record.find)
	}
}

// find returns an error unless a log of the process contains the record. Names of processes on management clusters have the
// name of the cluster as a prefix.
func (d documentedRecord) find() error {
	paths, err := filepath.Glob(filepath.Join(region.LogDir(), "*"+d.process+".log"))
	if err != nil || len(paths) == 0 {
		return fmt.Errorf("no log of %s: %v", d.process, err)
	}
	var closest []string
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range strings.SplitSeq(string(content), "\n") {
			var fields map[string]any
			if json.Unmarshal([]byte(line), &fields) != nil || fields["msg"] != d.message {
				continue
			}
			missing := slices.DeleteFunc(slices.Clone(d.keys), func(key string) bool { _, ok := fields[key]; return ok })
			if len(missing) == 0 {
				return nil
			}
			closest = missing
		}
	}
	if closest != nil {
		return fmt.Errorf("the record lacks the keys %v", closest)
	}
	return fmt.Errorf("no record in %v", paths)
}
