package audit

import (
	"fmt"
	"time"
)

// Signature is a signature with an audit key over a text outside of audit logs, such as the first line of a recording.
type Signature struct {
	// Key is the ID of the key.
	Key string `json:"key"`
	// Value is a signature of ES256 (RFC 7518, section 3.4).
	Value []byte `json:"value"`
}

// Sign signs a text. The domain names the kind of the text, without a newline: a signature is not valid for another kind.
func (k *SigningKey) Sign(domain string, text []byte) (Signature, error) {
	pair := k.current()
	value, err := pair.sign(domain, text)
	return Signature{Key: pair.id, Value: value}, err
}

// VerifySignature returns an error unless a key of a service that was in use at a time has signed a text.
func (k Keys) VerifySignature(service, domain string, at time.Time, text []byte, s Signature) error {
	key, err := k.trusted(service, s.Key, at)
	if err != nil {
		return err
	}
	if len(s.Value) != 2*coordinate || !key.verify(domain, text, s.Value) {
		return fmt.Errorf("its signature does not match the key %s of the service %s", s.Key, service)
	}
	return nil
}
