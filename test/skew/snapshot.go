package skew

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
)

// The files of a snapshot.
const (
	filesName = "files.tar.gz"
	keysName  = "etcd.jsonl.gz"
)

func databaseName(database string) string { return database + ".sql.gz" }

// databases are those of a region.
var databases = []string{local.ClusterServiceDatabase, local.MaestroDatabase}

// SaveSnapshot copies the data of the region with a configuration into a folder. The region must be stopped; SaveSnapshot runs its stores.
func SaveSnapshot(ctx context.Context, config local.Config, into string) error {
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	err := withStores(ctx, config, func(stores local.Endpoints) error {
		for _, database := range databases {
			if err := writeCompressed(filepath.Join(into, databaseName(database)), func(w io.Writer) error { return dump(ctx, stores, database, w) }); err != nil {
				return fmt.Errorf("saving the database %s: %w", database, err)
			}
		}
		if err := writeCompressed(filepath.Join(into, keysName), func(w io.Writer) error { return saveKeys(ctx, stores, w) }); err != nil {
			return fmt.Errorf("saving etcd: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := writeCompressed(filepath.Join(into, filesName), func(w io.Writer) error { return pack(config.StateDir, w) }); err != nil {
		return fmt.Errorf("saving the files of the region: %w", err)
	}
	return nil
}

// RestoreSnapshot creates the data of a region with a configuration from a folder that SaveSnapshot has filled. The state folder of the configuration must
// be empty. Operations that have not ended start when they are restored.
func RestoreSnapshot(ctx context.Context, config local.Config, from string) error {
	if err := readSnapshot(filepath.Join(from, filesName), func(r io.Reader) error { return unpack(r, config.StateDir) }); err != nil {
		return fmt.Errorf("restoring the files of the region: %w", err)
	}
	if err := renewOperations(ctx, config, time.Now()); err != nil {
		return fmt.Errorf("restoring Cosmos DB: %w", err)
	}
	return withStores(ctx, config, func(stores local.Endpoints) error {
		for _, database := range databases {
			if err := readSnapshot(filepath.Join(from, databaseName(database)), func(r io.Reader) error { return loadDump(ctx, stores, database, r) }); err != nil {
				return fmt.Errorf("restoring the database %s: %w", database, err)
			}
		}
		if err := readSnapshot(filepath.Join(from, keysName), func(r io.Reader) error { return restoreKeys(ctx, stores, r) }); err != nil {
			return fmt.Errorf("restoring etcd: %w", err)
		}
		return nil
	})
}

// withStores runs PostgreSQL and etcd of a region during do.
func withStores(ctx context.Context, config local.Config, do func(local.Endpoints) error) error {
	region, err := local.Start(ctx, config.StoresOnly())
	if err != nil {
		return fmt.Errorf("starting the stores of the region: %w", err)
	}
	defer region.Close()
	return do(region.Endpoints())
}

// writeCompressed creates a compressed file with what fill writes. The same content gives the same file.
func writeCompressed(path string, fill func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	compressed, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(fill(compressed), compressed.Close(), file.Close())
}

// readSnapshot passes the content of a compressed file to use.
func readSnapshot(path string, use func(io.Reader) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	content, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	return use(content)
}
