package test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/httpcase"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// departuresPage lists the rules in which the API differs from the published service.
const departuresPage = "docs/contract-departures.md"

// casesDir contains the suite of artifact cases of the API.
const casesDir = "frontend/testdata"

// departurePrefix is the prefix of the names of cases that exist only to test a departure.
const departurePrefix = "departure-"

// departureHeader is the header of every table in departuresPage.
var departureHeader = []string{"rule", "published", "hcpmesh", "reason", "proof"}

// proofName matches the name of an artifact case or a Go test in the last column.
var proofName = regexp.MustCompile("^`([A-Za-z0-9_-]+)`$")

// TestContractDepartures checks that each row of docs/contract-departures.md has five cells and names at least one
// existing artifact case or Go test as its proof, and that the page names every case with the prefix departure-.
func TestContractDepartures(t *testing.T) {
	cases := caseNames(t)
	tests := testFunctions(t)
	named := map[string]bool{}
	rules := map[string]bool{}
	for _, row := range departureRows(t) {
		if len(row.cells) != len(departureHeader) {
			t.Errorf("%s:%d: the row has %d cells; it must have %d: %s", departuresPage, row.line, len(row.cells), len(departureHeader), strings.Join(departureHeader, ", "))
			continue
		}
		for i, cell := range row.cells {
			if cell == "" {
				t.Errorf("%s:%d: the cell %q is empty", departuresPage, row.line, departureHeader[i])
			}
		}
		if rules[row.cells[0]] {
			t.Errorf("%s:%d: the rule %q has two rows", departuresPage, row.line, row.cells[0])
		}
		rules[row.cells[0]] = true
		for proof := range strings.SplitSeq(row.cells[4], ",") {
			match := proofName.FindStringSubmatch(strings.TrimSpace(proof))
			switch {
			case match == nil:
				t.Errorf("%s:%d: %q must be the name of a case or of a Go test in backquotes", departuresPage, row.line, proof)
			case strings.HasPrefix(match[1], "Test") && !tests[match[1]]:
				t.Errorf("%s:%d: the repository has no Go test %s", departuresPage, row.line, match[1])
			case !strings.HasPrefix(match[1], "Test") && !cases[match[1]]:
				t.Errorf("%s:%d: %s has no case %s", departuresPage, row.line, casesDir, match[1])
			default:
				named[match[1]] = true
			}
		}
	}
	if len(rules) == 0 {
		t.Errorf("%s contains no rows", departuresPage)
	}
	for name := range cases {
		if strings.HasPrefix(name, departurePrefix) && !named[name] {
			t.Errorf("%s does not name the case %s", departuresPage, name)
		}
	}
}

// tableRow is a row of a Markdown table.
type tableRow struct {
	line  int
	cells []string
}

// departureRows returns the rows of all tables of the page without headers and separators.
func departureRows(t *testing.T) []tableRow {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(root(t), filepath.FromSlash(departuresPage))))(t)
	var rows []tableRow
	for i, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|-") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for j := range cells {
			cells[j] = strings.TrimSpace(cells[j])
		}
		if strings.Join(cells, "|") != strings.Join(departureHeader, "|") {
			rows = append(rows, tableRow{i + 1, cells})
		}
	}
	return rows
}

// caseNames returns the names of all artifact cases of the API.
func caseNames(t *testing.T) map[string]bool {
	t.Helper()
	cases := must.Get(httpcase.Suite{Dir: filepath.Join(root(t), filepath.FromSlash(casesDir))}.Load())(t)
	names := map[string]bool{}
	for _, c := range cases {
		names[c.Name] = true
	}
	return names
}

// testFunctions returns the names of all Go tests of the repository.
func testFunctions(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, file := range goFiles(t) {
		if !file.test() {
			continue
		}
		for name := range declaredNames(file.syntax) {
			if strings.HasPrefix(name, "Test") {
				names[name] = true
			}
		}
	}
	return names
}

// TestDefinitionsAreGenerated checks that `make generate` has checked the protocol buffers as they are and generated the code from them.
func TestDefinitionsAreGenerated(t *testing.T) {
	definitions := filepath.Join(root(t), "api", "proto")
	var files []string
	must.Do(t, filepath.WalkDir(definitions, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	}))
	slices.Sort(files)
	sum := sha256.New()
	for _, file := range files {
		sum.Write(must.Get(os.ReadFile(file))(t))
	}
	generated := must.Get(os.ReadFile(filepath.Join(root(t), "api", "clusterservice", "v1", "definitions.sha256")))(t)
	if strings.TrimSpace(string(generated)) != fmt.Sprintf("%x", sum.Sum(nil)) {
		t.Error("api/proto differs from what api/clusterservice was generated from; run make generate")
	}
}
