package recording_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/recording"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// forge returns a whole recording of an attacker who has the public key of the readers, and a signing key that is not the gateway's.
func forge(t testing.TB, public *seal.PublicKeys) []byte {
	t.Helper()
	key := must.Get(audit.GenerateKey())(t)
	w, log, err := recording.NewWriter(public, key, facts, []string{"forged"})
	if err != nil {
		t.Fatal(err)
	}
	log = append(log, w.Data(at(10), recording.Stdin, []byte("rm -rf /\r"))...)
	return append(log, w.End(recording.End{Time: at(60), Reason: "."})...)
}

// changeFirst changes the members of the first line of a log.
func changeFirst(t testing.TB, log []byte, change func(members map[string]json.RawMessage)) []byte {
	t.Helper()
	first, rest, _ := bytes.Cut(log, []byte("\n"))
	members := map[string]json.RawMessage{}
	must.Do(t, json.Unmarshal(first, &members))
	change(members)
	changed := must.Get(json.Marshal(members))(t)
	return slices.Concat(changed, []byte("\n"), rest)
}

// TestForgedRecordingIsRefused forges whole recordings with the public key of the readers, and changes each field of the first line of a genuine one. None
// has a valid signature. Without a verification, the title states that.
func TestForgedRecordingIsRefused(t *testing.T) {
	public, private := newPair(t)
	forged := forge(t, public)
	w, genuine := record(t, public)
	genuine = append(genuine, w.End(recording.End{Time: at(60), Reason: "."})...)
	read(t, genuine, private)
	var first map[string]json.RawMessage
	must.Do(t, json.Unmarshal(genuine[:bytes.IndexByte(genuine, '\n')], &first))
	with := func(log []byte, name string, value json.RawMessage) []byte {
		return changeFirst(t, log, func(members map[string]json.RawMessage) { members[name] = value })
	}
	var signature map[string]json.RawMessage
	must.Do(t, json.Unmarshal(first["signature"], &signature))
	cases := map[string][]byte{
		"an attacker's signature":       forged,
		"no signature":                  changeFirst(t, forged, func(members map[string]json.RawMessage) { delete(members, "signature") }),
		"null":                          with(forged, "signature", json.RawMessage("null")),
		"an empty signature":            with(forged, "signature", json.RawMessage("{}")),
		"a key without a signature":     with(forged, "signature", json.RawMessage(`{"key":`+string(signature["key"])+`}`)),
		"a short signature":             with(forged, "signature", json.RawMessage(`{"key":`+string(signature["key"])+`,"value":"AAAA"}`)),
		"a signature of zeros":          with(forged, "signature", json.RawMessage(`{"key":`+string(signature["key"])+`,"value":"`+strings.Repeat("A", 86)+`=="}`)),
		"the signature of another one":  with(forged, "signature", first["signature"]),
		"the key of the forged one":     with(genuine, "key", sealedKey(t, forged)),
		"a genuine one, not signed":     changeFirst(t, genuine, func(members map[string]json.RawMessage) { delete(members, "signature") }),
		"a genuine one, without a key":  changeFirst(t, genuine, func(members map[string]json.RawMessage) { delete(members, "key") }),
		"the signature of a checkpoint": with(forged, "signature", signatureFor(t, "hcpmesh audit checkpoint", forged)),
	}
	var members map[string]json.RawMessage
	must.Do(t, json.Unmarshal(first["facts"], &members))
	for name, value := range members {
		changed := strings.Replace(string(value), `"`, `"0`, 1)
		switch {
		case name == "id":
			changed = `"ffffffff-0001-4002-8003-0123456789ab"`
		case name == "start":
			changed = `"2026-11-25T05:00:00Z"`
		case name == "tty":
			changed = "false"
		case name == "owner":
			changed = `{"name":"mallory","objectId":"o"}`
		}
		edited := maps.Clone(members)
		edited[name] = json.RawMessage(changed)
		content := must.Get(json.Marshal(edited))(t)
		cases["another "+name] = with(genuine, "facts", content)
	}
	for name, log := range cases {
		if _, err := recording.NewReader(bytes.NewReader(log), private, signers); !errors.Is(err, recording.ErrUnsigned) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The cases fail because of what they change.
	if _, err := recording.NewReader(bytes.NewReader(with(forged, "signature", signatureFor(t, "hcpmesh recording", forged))), private, signers); err != nil {
		t.Errorf("a recording that the gateway signs: %v", err)
	}
	if _, err := recording.NewReader(bytes.NewReader(genuine), private, nil); !errors.Is(err, recording.ErrUnsigned) {
		t.Errorf("without keys: %v", err)
	}

	r := must.Get(recording.NewUnverifiedReader(bytes.NewReader(cases["no signature"]), private))(t)
	var text bytes.Buffer
	must.Do(t, r.WriteAsciicast(&text))
	if header, events := parse(t, text.Bytes()); header.Title != "NOT VERIFIED: exec default/a -c main -- forged" || len(events) != 2 {
		t.Errorf("%+v, %v", header, events)
	}
}

// sealedKey returns the sealed key of a log.
func sealedKey(t testing.TB, log []byte) (key json.RawMessage) {
	t.Helper()
	changeFirst(t, log, func(members map[string]json.RawMessage) { key = members["key"] })
	return key
}

// signatureFor returns the signature of the gateway for the first line of a log in a domain.
func signatureFor(t testing.TB, domain string, log []byte) json.RawMessage {
	t.Helper()
	var first struct {
		Facts json.RawMessage
		Key   []byte
	}
	must.Do(t, json.Unmarshal(log[:bytes.IndexByte(log, '\n')], &first))
	signature := must.Get(signing.Sign(domain, fmt.Appendf(nil, "access-recording/%x\n%s", sha256.Sum256(first.Facts), first.Key)))(t)
	return must.Get(json.Marshal(signature))(t)
}

// TestSignatureEndsWithItsKey reads recordings of a key that was replaced: those before the end of its use are valid.
func TestSignatureEndsWithItsKey(t *testing.T) {
	public, private := newPair(t)
	_, log := record(t, public)
	for until, want := range map[time.Time]error{at(1): nil, at(-1): recording.ErrUnsigned} {
		keys := audit.Keys{}
		keys.TrustUntil(string(mesh.GatewayAccess), signing, until)
		if _, err := recording.NewReader(bytes.NewReader(log), private, keys); !errors.Is(err, want) {
			t.Errorf("a key until %s: %v", until, err)
		}
	}
	keys := audit.Keys{}
	keys.Trust("admin", signing)
	if _, err := recording.NewReader(bytes.NewReader(log), private, keys); !errors.Is(err, recording.ErrUnsigned) {
		t.Errorf("the key of another service: %v", err)
	}
}
