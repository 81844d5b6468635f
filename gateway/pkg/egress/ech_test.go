package egress

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// ECHConfigList returns the ECHConfigList (RFC 9849) of a server with a public name, whose private key nobody has. Clients use
// Encrypted Client Hello with it.
func ECHConfigList(t testing.TB, publicName string) []byte {
	t.Helper()
	key := must.Get(ecdh.X25519().GenerateKey(rand.Reader))(t)
	public := key.PublicKey().Bytes()
	content := []byte{1, 0, 0x20, 0, byte(len(public))} // ID, X25519 with HKDF-SHA256
	content = append(content, public...)
	content = append(content, 0, 4, 0, 1, 0, 1, 0, byte(len(publicName))) // HKDF-SHA256, AES-128-GCM, no maximum length
	content = append(content, publicName...)
	content = append(content, 0, 0)
	config := binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(content)))
	config = append(config, content...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...)
}
