package intent

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"
)

// Message is a request of a gRPC method.
type Message = proto.Message

// Digest returns the digest of a gRPC method and its request. All services are built with the same encoder, which is
// deterministic. A service that does not know a field of the request computes another digest than the one that knows it, so
// that it refuses the request instead of executing a part of it.
func Digest(method string, request Message) (string, error) {
	content, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return "", fmt.Errorf("encoding a request of %s: %w", method, err)
	}
	hash := sha256.New()
	_, _ = io.WriteString(hash, method+"\x00")
	_, _ = hash.Write(content)
	return base64.RawURLEncoding.EncodeToString(hash.Sum(nil)), nil
}

// DigestJSON returns the digest of a JSON value. It depends neither on the order of object members nor on white space, which a
// database may change. Empty content has the digest of null.
func DigestJSON(content []byte) (string, error) {
	var value any
	if len(bytes.TrimSpace(content)) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(content))
		decoder.UseNumber()
		if err := decoder.Decode(&value); err != nil {
			return "", fmt.Errorf("decoding parameters: %w", err)
		}
		if _, err := decoder.Token(); err != io.EOF {
			return "", errors.New("decoding parameters: there is data after the JSON value")
		}
	}
	canonical, err := json.Marshal(value) // sorts the members
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(canonical)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// AllowsCall reports whether the intent is for this call.
func (i *Intent) AllowsCall(method string, request Message) bool {
	if i.Call == nil || i.Call.Method != method {
		return false
	}
	digest, err := Digest(method, request)
	return err == nil && sameDigest(digest, i.Call.Digest)
}

// AllowsParameters reports whether the intent is for these parameters.
func (i *Intent) AllowsParameters(parameters []byte) bool {
	digest, err := DigestJSON(parameters)
	return err == nil && sameDigest(digest, i.Parameters)
}

func sameDigest(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
