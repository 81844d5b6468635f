package emulator

import (
	"context"
	"errors"
	"fmt"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/account"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/store"
)

// provision creates the databases and containers of an account that do not exist. It does not change existing ones.
func provision(st *store.Store, a *account.Account) error {
	ctx := context.Background()
	for i, database := range a.Databases {
		if _, err := st.CreateDatabase(ctx, database.Name); unlessExists(err) != nil {
			return fmt.Errorf("databases[%d]: creating %q: %w", i, database.Name, err)
		}
		for j, container := range database.Containers {
			properties, err := document.Parse(container)
			if err == nil {
				_, err = st.CreateContainer(ctx, database.Name, properties)
			}
			if unlessExists(err) != nil {
				return fmt.Errorf("databases[%d].containers[%d]: creating %q: %w", i, j, properties.Get("id").Str, err)
			}
		}
	}
	return nil
}

func unlessExists(err error) error {
	var rejected *store.Error
	if errors.As(err, &rejected) && rejected.Kind == store.Conflict {
		return nil
	}
	return err
}
