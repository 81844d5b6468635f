package layer

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// tree reads layers from texts by file name.
func tree(t *testing.T, files map[string]string) (*Tree, string) {
	t.Helper()
	system := fstest.MapFS{}
	for name, text := range files {
		system[name] = &fstest.MapFile{Data: []byte(text)}
	}
	read, problems, err := Read(system, "config")
	if err != nil {
		t.Fatal(err)
	}
	return read, problems.Error()
}

// files are the layers of public/dev/west/1; region is the content of the region's.
func files(defaults, cloud, environment, region, stamp string) map[string]string {
	return map[string]string{"defaults.yaml": defaults, "clouds/public.yaml": cloud, "clouds/public/dev.yaml": environment,
		"clouds/public/dev/west.yaml": region, "clouds/public/dev/west/1.yaml": stamp}
}

func TestMerge(t *testing.T) {
	read, problems := tree(t, files("a: {x: 1, y: 2}\nlist: [1, 2]\ngone: {deep: 1}\nback: 1\n", "a: {y: 3}\nback: null\n", "list: [3]\n", "gone: {deep: null}\nback: 5\n", "a: {z: 4}\n"))
	if problems != "" {
		t.Fatal(problems)
	}
	merged, wrong, err := read.Merge(Target{"public", "dev", "west", "1"})
	if err != nil || wrong != nil {
		t.Fatal(err, wrong)
	}
	want := map[string]any{"a": map[string]any{"x": int64(1), "y": int64(3), "z": int64(4)}, "list": []any{int64(3)}, "gone": map[string]any{}, "back": int64(5),
		"cloud": "public", "environment": "dev", "region": "west", "stamp": "1"}
	if diff := cmp.Diff(want, merged.Plain()); diff != "" {
		t.Error(diff)
	}
	y := merged.Get("a", "y")
	if y.Origin.String() != "config/clouds/public.yaml:1" || y.Origin.Layer != "cloud public" || y.Overrides.Origin.Layer != "defaults" {
		t.Errorf("a.y is from %v and overrides %v", y.Origin, y.Overrides)
	}
	if deleted := merged.Deletion("gone", "deep"); deleted == nil || deleted.Origin.Layer != "region public/dev/west" {
		t.Errorf("the deletion is %v", deleted)
	}
	// Merging must not change the layers, which other targets share.
	if again, _, _ := read.Merge(Target{"public"}); !cmp.Equal(again.Plain(), map[string]any{"a": map[string]any{"x": int64(1), "y": int64(3)}, "list": []any{int64(1), int64(2)},
		"gone": map[string]any{"deep": int64(1)}, "cloud": "public"}) {
		t.Errorf("the cloud has %v", again.Plain())
	}
}

func TestMergeRejectsConflicts(t *testing.T) {
	for reason, c := range map[string]struct {
		region, want string
	}{
		"null without a value": {"other: null\n", "config/clouds/public/dev/west.yaml:1: other: null deletes an inherited value, and no outer layer sets this key (layer region public/dev/west)"},
		"null deep in new map": {"new: {x: null}\n", "new.x: null deletes"},
		"a value for a map":    {"\na: 1\n", "config/clouds/public/dev/west.yaml:2: a: is a single value here and a map at config/defaults.yaml:1"},
		"a map for a list":     {"list: {x: 1}\n", "list: is a map here and a list at config/defaults.yaml:2"},
	} {
		read, _ := tree(t, files("a: {x: 1}\nlist: [1]\n", "", "", c.region, ""))
		_, problems, err := read.Merge(Target{"public", "dev", "west"})
		if err != nil || len(problems) != 1 || !strings.Contains(problems.Error(), c.want) {
			t.Errorf("%s: got %q, %v; want %q", reason, problems.Error(), err, c.want)
		}
	}
}

// TestImagesAreALayerOfTheirEnvironment checks the order of the layers: a region may have another digest than its environment.
func TestImagesAreALayerOfTheirEnvironment(t *testing.T) {
	all := files("frontend: {image: {repository: a}}\nagent: {image: {repository: b}}\n", "", "frontend: {image: {digest: one}}\n", "agent: {image: {digest: region}}\n", "")
	all["images/public/dev.yaml"] = "frontend: {image: {digest: two}}\nagent: {image: {digest: two}}\n"
	read, problems := tree(t, all)
	if problems != "" {
		t.Fatal(problems)
	}
	merged, wrong, err := read.Merge(Target{"public", "dev", "west"})
	if err != nil || wrong != nil {
		t.Fatal(err, wrong)
	}
	if n := merged.Get("frontend", "image", "digest"); n.Value != "two" || n.Origin.Layer != "images public/dev" || n.Origin.String() != "config/images/public/dev.yaml:1" || n.Overrides.Origin.Layer != "environment public/dev" {
		t.Errorf("frontend.image.digest is %v from %v and overrides %v", n.Value, n.Origin, n.Overrides)
	}
	if n := merged.Get("agent", "image", "digest"); n.Value != "region" || n.Overrides.Value != "two" {
		t.Errorf("agent.image.digest is %v and overrides %v", n.Value, n.Overrides)
	}
	if layers := len(read.All()); layers != 6 {
		t.Errorf("%d layers", layers)
	}
	if targets := read.At(Environment, nil); len(targets) != 1 {
		t.Errorf("the environments are %v", targets)
	}
}

func TestImagesHaveOnlyDigests(t *testing.T) {
	for text, want := range map[string]string{
		"frontend: {image: {repository: a}}":          "config/images/public/dev.yaml:1: frontend.image.repository: a layer of images may set only the keys KEY.image.digest; set others in clouds (layer images public/dev)",
		"frontend: {replicas: 3}":                     "frontend.replicas: a layer of images may set only",
		"frontend: {image: {digest: null}}":           "frontend.image.digest: a layer of images may set only",
		"frontend: {image: {digest: [a]}}":            "frontend.image.digest: a layer of images may set only",
		"digest: a":                                   "digest: a layer of images may set only",
		"frontend: {image: {digest: a, digest: b}}":   "the key appears twice",
		"frontend: {image: {digest: a}}\n---\na: b\n": "must contain one YAML document",
	} {
		all := files("", "", "", "", "")
		all["images/public/dev.yaml"] = text
		if _, problems := tree(t, all); !strings.Contains(problems, want) {
			t.Errorf("%s: got %q, want %q", text, problems, want)
		}
	}
}

func TestReadRejectsWrongFiles(t *testing.T) {
	for name, want := range map[string]string{
		"clouds/public/dev/west/x.yaml":      `the stamp "x" does not match`,
		"clouds/public/dev/west/1/2.yaml":    "has more than 4 names",
		"clouds/public/Dev.yaml":             `the environment "Dev" does not match`,
		"clouds/public/prod/west.yaml":       "needs the outer layer environment public/prod, and config/clouds/public/prod.yaml does not exist",
		"clouds/public/dev/west.yml":         "only regular files named *.yaml",
		"images/public/prod.yaml":            "needs the layer environment public/prod, and config/clouds/public/prod.yaml does not exist",
		"images/public.yaml":                 "images belong to environments: name the file images/CLOUD/ENVIRONMENT.yaml",
		"images/public/dev/west.yaml":        "images belong to environments",
		"images/public/dev.json":             "only regular files named *.yaml",
		"clouds/public/muchtoolongname.yaml": `the environment "muchtoolongname" does not match`,
	} {
		all := files("", "", "", "", "")
		all[name] = ""
		if _, problems := tree(t, all); !strings.Contains(problems, want) {
			t.Errorf("%s: got %q, want %q", name, problems, want)
		}
	}
}

func TestUnknownTarget(t *testing.T) {
	read, _ := tree(t, files("", "", "", "", ""))
	if _, _, err := read.Merge(Target{"public", "dev", "east"}); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "config/clouds/public/dev/east.yaml") {
		t.Errorf("got %v", err)
	}
}

func TestResolve(t *testing.T) {
	read, _ := tree(t, files("a: \"${b}-${region}\"\nb: \"x${n}\"\nn: 7\nlist: [\"${a}\"]\n", "", "", "", ""))
	merged, _, _ := read.Merge(Target{"public", "dev", "west"})
	resolved, problems := Resolve(merged)
	if problems != nil {
		t.Fatal(problems)
	}
	if a := resolved.Get("a"); a.Value != "x7-west" || a.Text != "${b}-${region}" {
		t.Errorf("a is %v from %v", a.Value, a.Text)
	}
	if item := resolved.Get("list", "0"); item.Value != "x7-west" {
		t.Errorf("list[0] is %v", item.Value)
	}
	if merged.Get("a").Value != "${b}-${region}" {
		t.Error("Resolve changed the merged values")
	}
}

func TestResolveRejectsWrongReferences(t *testing.T) {
	for text, want := range map[string]string{
		`a: "${b}"`:                         "config/defaults.yaml:1: a: refers to b, which no layer of the target sets",
		`{a: "${b}", b: {c: 1}}`:            "a: refers to b, which is a map",
		`{a: "${b}", b: "${c}", c: "${a}"}`: "the references form a cycle",
		`a: "${a}"`:                         "the references form a cycle: a → a",
		`a: "${"`:                           "is not a reference",
		`a: "${b c}"`:                       "is not a reference",
		`{a: "${gone}", gone: 1}` + "\n#":   "refers to gone",
		`{a: "` + strings.Repeat("${b}", 2000) + `", b: xxx}`: "more than 4096 characters",
	} {
		cloud := ""
		if strings.Contains(text, "gone") {
			cloud = "gone: null"
		}
		read, _ := tree(t, files(text, cloud, "", "", ""))
		merged, _, _ := read.Merge(Target{"public"})
		if _, problems := Resolve(merged); !strings.Contains(problems.Error(), want) {
			t.Errorf("%s: got %q, want %q", text, problems.Error(), want)
		}
	}
}
