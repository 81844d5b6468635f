// Package keyfile reads and creates files with Tink keysets in JSON. A file holds the keys in clear text, readable by its
// owner only. In production it is a secret of Azure Key Vault that is mounted into the process; see
// docs/operators/sealing-keys.md. The package never includes keys in errors.
package keyfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"

	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// Read reads a keyset.
func Read(path string) (*keyset.Handle, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(content)))
	if err != nil {
		// The reader's error may quote a key.
		return nil, fmt.Errorf("%s is not a Tink keyset in JSON: create one with tinkey, or in a local region delete the file", path)
	}
	return handle, nil
}

// Create writes a keyset with one new key to a file that only its owner can read. It does nothing if the file exists. When
// several processes create the file at once, one of them writes it.
func Create(path string, template *tinkpb.KeyTemplate) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	handle, err := keyset.NewHandle(template)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := insecurecleartextkeyset.Write(handle, keyset.NewJSONWriter(&text)); err != nil {
		return fmt.Errorf("%s: the keyset cannot be written", path) // the error may quote a key
	}
	if err := disk.Create(path, text.Bytes(), 0o600); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
