package store

import (
	"io/fs"
	"path"
	"regexp"
	"testing"
)

// TestMigrationsHaveANumberOfTheirOwn: two branches that take the same number at once are found out when they meet, and not when
// somebody wonders which of the two came first. The two that did before there was this test cannot be renamed (Migrate says why).
func TestMigrationsHaveANumberOfTheirOwn(t *testing.T) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no migrations: %v", err)
	}
	form := regexp.MustCompile(`^(\d{4})_[a-z_]+\.sql$`)
	released := map[string]bool{"0003_update_graphs.sql": true, "0003_upgrades.sql": true}
	taken := map[string]string{}
	for _, file := range files {
		name := path.Base(file)
		number := form.FindStringSubmatch(name)
		if number == nil {
			t.Errorf("%s is not NNNN_words.sql", name)
			continue
		}
		if other := taken[number[1]]; other != "" && !(released[name] && released[other]) {
			t.Errorf("%s and %s have the same number", other, name)
		}
		taken[number[1]] = name
	}
}
