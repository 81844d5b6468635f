package store

import (
	"io/fs"
	"path"
	"regexp"
	"testing"
)

// TestMigrationNumbersAreUnique rejects two migrations with the same number, as two branches can create them.
func TestMigrationNumbersAreUnique(t *testing.T) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no migrations: %v", err)
	}
	form := regexp.MustCompile(`^(\d{4})_[a-z_]+\.sql$`)
	taken := map[string]string{}
	for _, file := range files {
		name := path.Base(file)
		number := form.FindStringSubmatch(name)
		if number == nil {
			t.Errorf("%s is not NNNN_words.sql", name)
			continue
		}
		if other := taken[number[1]]; other != "" {
			t.Errorf("%s and %s have the same number", other, name)
		}
		taken[number[1]] = name
	}
}
