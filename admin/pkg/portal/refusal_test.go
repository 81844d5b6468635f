package portal

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/refusalcost"
)

// refusedForms returns the form of an action that is accepted, refused ones, and what decides about them before admin is asked.
func refusedForms() (accepted []byte, refused map[string][]byte, decide func([]byte) error) {
	const begin = "name=mgmt-9&capacity=100&zones=1,2,3&sizeClasses=small,large&reason=more+capacity+is+needed&ticket=INC-1&length=30m"
	var register action
	for _, a := range actions() {
		if a.Path == "register-shard" {
			register = a
		}
	}
	refused = map[string][]byte{
		"many fields":            refusalcost.Numbered(maxForm, "capacity=x", "&%d=", ""),
		"many fields, no values": refusalcost.Numbered(maxForm, "capacity=x", "&%d", ""),
		"one field many times":   refusalcost.Filled(maxForm, "capacity=x", "&a=b", ""),
		"empty pairs":            refusalcost.Filled(maxForm, "capacity=x", "&", ""),
		"escapes":                refusalcost.Filled(maxForm, "capacity=x&a=", "%41", ""),
		"invalid escape":         refusalcost.Filled(maxForm, "capacity=100&a=", "%41", "%zz"),
		"invalid escapes":        refusalcost.Filled(maxForm, "capacity=100", "&a=%zz", ""),
		"long number":            refusalcost.Filled(maxForm, "name=a&capacity=", "1", ""),
		"labels without values":  refusalcost.Filled(maxForm, begin+"&labels=a", "+a", ""),
		"many labels":            refusalcost.Numbered(maxForm, begin+"&labels=a=b", ",%d=x", ",c"),
		"many zones":             refusalcost.Filled(maxForm, "name=a&capacity=x&zones=", "1,", ""),
	}
	return []byte(begin + "&labels=stage=prod"), refused, func(content []byte) error {
		request := &http.Request{Method: http.MethodPost, URL: &url.URL{}, Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, Body: io.NopCloser(bytes.NewReader(content))}
		if err := request.ParseForm(); err != nil {
			return err
		}
		_, _, _, err := register.request(object{}, request.PostForm)
		return err
	}
}

// TestRefusedFormsNeedNoMoreMemory compares forms that are refused with an accepted one.
func TestRefusedFormsNeedNoMoreMemory(t *testing.T) {
	accepted, refused, decide := refusedForms()
	refusalcost.CheckMemory(t, accepted, refused, decide)
}

// BenchmarkRefusedForms compares forms that are refused with an accepted one.
func BenchmarkRefusedForms(b *testing.B) {
	accepted, refused, decide := refusedForms()
	refusalcost.Compare(b, accepted, refused, decide)
}
