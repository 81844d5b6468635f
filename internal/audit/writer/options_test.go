package writer

import (
	"strings"
	"testing"
)

func TestOptions(t *testing.T) {
	const sinkURL, witnessURL = "https://records.example/records", "https://checkpoints.example/checkpoints"
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"folders":                     {func(*Options) {}, ""},
		"containers":                  {func(o *Options) { o.SinkDir, o.WitnessDir, o.SinkURL, o.WitnessURL = "", "", sinkURL, witnessURL }, ""},
		"a container and a folder":    {func(o *Options) { o.SinkDir, o.SinkURL = "", sinkURL }, ""},
		"no sink":                     {func(o *Options) { o.SinkDir = "" }, "--audit-sink-dir is required"},
		"no witness":                  {func(o *Options) { o.WitnessDir = "" }, "--audit-witness-dir is required"},
		"two sinks":                   {func(o *Options) { o.SinkURL = sinkURL }, "--audit-sink-dir and --audit-sink-url"},
		"two witnesses":               {func(o *Options) { o.WitnessURL = witnessURL }, "--audit-witness-dir and --audit-witness-url"},
		"a container without TLS":     {func(o *Options) { o.SinkDir, o.SinkURL = "", "http://records.example/records" }, "--audit-sink-url"},
		"the witness in the sink":     {func(o *Options) { o.WitnessDir = o.SinkDir }, "--audit-witness-dir"},
		"the witness's container too": {func(o *Options) { o.SinkDir, o.WitnessDir, o.SinkURL, o.WitnessURL = "", "", sinkURL, sinkURL }, "--audit-witness-dir"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{QueueDir: "queue", SinkDir: "sink", WitnessDir: "witness", KeyFile: "key", QueueLimit: DefaultBytes}
			c.change(&o)
			err := o.Validate()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
