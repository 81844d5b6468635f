package dashboard

import "testing"

func TestExpand(t *testing.T) {
	d := &Dashboard{Variables: []Variable{{Name: "shard"}, {Name: "cluster"}}}
	const expression = `rate(m{shard=~"$shard",other=~"$shards"}[$__rate_interval])`
	tests := map[string]struct {
		chosen map[string][]string
		want   string
	}{
		"no choice":        {nil, `rate(m{shard=~".*",other=~"$shards"}[1m])`},
		"two values":       {map[string][]string{"shard": {"mgmt-1", "mgmt-2"}}, `rate(m{shard=~"mgmt-1|mgmt-2",other=~"$shards"}[1m])`},
		"special":          {map[string][]string{"shard": {`a.b"c\`}}, `rate(m{shard=~"a\\.b\"c\\\\",other=~"$shards"}[1m])`},
		"another variable": {map[string][]string{"cluster": {"c"}}, `rate(m{shard=~".*",other=~"$shards"}[1m])`},
	}
	for name, tc := range tests {
		if got := d.Expand(expression, "1m", tc.chosen); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestQueryName(t *testing.T) {
	labels := map[string]string{"shard": "mgmt-1", "lane": "work"}
	for legend, want := range map[string]string{
		"{{shard}} {{ lane }}": "mgmt-1 work", "free": "free", "{{missing}}x": "x", "": "lane=work shard=mgmt-1",
	} {
		if got := (&Query{Legend: legend}).Name(labels); got != want {
			t.Errorf("%q: %q, want %q", legend, got, want)
		}
	}
}
