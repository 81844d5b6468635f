package document

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The limits of a file.
const (
	// MaxBytes is the size of the largest file.
	MaxBytes = 1 << 20
	// maxDepth is the largest number of maps and lists within each other.
	maxDepth = 20
)

// keyForm is the form of keys. Paths of keys are written with dots, so a key has none.
var keyForm = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// fraction is the only form of numbers that are not integers.
var fraction = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)\.[0-9]+$`)

// decimal is the only form of integers: others, such as 0777 or 1_000, have different values in YAML 1.1 and 1.2.
var decimal = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)$`)

// Parse reads a file. The name of the file and the layer are in from. Parse returns an empty map for a file without content.
func Parse(from Origin, text []byte) (*Node, Problems) {
	p := &parser{from: from}
	root := &Node{Kind: Map, Fields: map[string]*Node{}, Origin: from}
	if len(text) > MaxBytes {
		p.complain(0, "", "the file has %d bytes; the limit is %d", len(text), MaxBytes)
		return root, p.problems
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var file yaml.Node
	err := decoder.Decode(&file)
	if errors.Is(err, io.EOF) {
		return root, nil
	}
	if err != nil {
		p.complain(lineOf(err), "", "the file is not YAML: %s", withoutLine(err))
		return root, p.problems
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		p.complain(0, "", "the file must contain one YAML document")
		return root, p.problems
	}
	top := file.Content[0]
	if top.Kind != yaml.MappingNode {
		if top.ShortTag() == "!!null" {
			return root, nil
		}
		p.complain(top.Line, "", "the file must contain a map")
		return root, p.problems
	}
	return p.node("", top, 0, ""), p.problems
}

var errorLine = regexp.MustCompile(`line (\d+): `)

// lineOf returns the line that an error of the YAML library names, or 0.
func lineOf(err error) int {
	if match := errorLine.FindStringSubmatch(err.Error()); match != nil {
		line, _ := strconv.Atoi(match[1])
		return line
	}
	return 0
}

func withoutLine(err error) string {
	return strings.TrimPrefix(errorLine.ReplaceAllString(err.Error(), ""), "yaml: ")
}

type parser struct {
	from     Origin
	problems Problems
}

func (p *parser) complain(line int, key, format string, values ...any) {
	p.problems = append(p.problems, Problem{p.at(line), key, fmt.Sprintf(format, values...)})
}

func (p *parser) at(line int) Origin { return Origin{p.from.Layer, p.from.File, line} }

// node converts a value. A key without a comment has that of the map that contains it.
func (p *parser) node(key string, y *yaml.Node, depth int, comment string) *Node {
	n := &Node{Kind: Deleted, Origin: p.at(y.Line)}
	switch {
	case y.Anchor != "" || y.Kind == yaml.AliasNode:
		p.complain(y.Line, key, "anchors and aliases are not allowed; repeat the value or refer to a key with ${KEY}")
	case y.Style&yaml.TaggedStyle != 0:
		p.complain(y.Line, key, "the tag %s is not allowed", y.Tag)
	case depth > maxDepth:
		p.complain(y.Line, key, "more than %d maps and lists within each other", maxDepth)
	case y.Kind == yaml.MappingNode:
		n.Kind, n.Fields = Map, p.fields(key, y, depth, comment)
	case y.Kind == yaml.SequenceNode:
		n.Kind, n.Items = List, []*Node{}
		for i, item := range y.Content {
			n.Items = append(n.Items, p.item(Join(key, strconv.Itoa(i)), item, depth))
		}
	default:
		p.scalar(key, y, n)
	}
	return n
}

func (p *parser) item(key string, y *yaml.Node, depth int) *Node {
	item := p.node(key, y, depth+1, "")
	if item.Kind == Deleted && y.ShortTag() == "!!null" {
		p.complain(y.Line, key, "null is not allowed in a list")
	}
	return item
}

func (p *parser) fields(key string, y *yaml.Node, depth int, comment string) map[string]*Node {
	fields := map[string]*Node{}
	for i := 0; i+1 < len(y.Content); i += 2 {
		name, value := y.Content[i], y.Content[i+1]
		path := Join(key, name.Value)
		switch {
		case name.Kind != yaml.ScalarNode || name.Anchor != "" || !keyForm.MatchString(name.Value):
			p.complain(name.Line, key, "the key %q has characters other than letters, digits, '_' and '-'", name.Value)
			continue
		case fields[name.Value] != nil:
			p.complain(name.Line, path, "the key appears twice; the first is in line %d", fields[name.Value].Origin.Line)
			continue
		}
		why := cmp.Or(commentOf(name, value), comment)
		field := p.node(path, value, depth+1, why)
		field.Origin.Line, field.Comment = name.Line, why
		fields[name.Value] = field
	}
	return fields
}

// scalar sets the value of n. The parser may not quote values in messages, because a misplaced secret may be one.
func (p *parser) scalar(key string, y *yaml.Node, n *Node) {
	n.Kind = Scalar
	switch tag := y.ShortTag(); tag {
	case "!!null":
		n.Kind = Deleted
	case "!!str":
		n.Value = y.Value
	case "!!bool":
		n.Value = strings.EqualFold(y.Value, "true")
	case "!!int":
		number, err := strconv.ParseInt(y.Value, 10, 64)
		if err != nil || !decimal.MatchString(y.Value) {
			p.complain(y.Line, key, "a number must be a decimal integer of 64 bits; put quotes around text")
		}
		n.Value = number
	case "!!float":
		number, err := strconv.ParseFloat(y.Value, 64)
		if err != nil || !fraction.MatchString(y.Value) {
			p.complain(y.Line, key, "a number must be a decimal integer of 64 bits or a fraction such as 0.5; put quotes around text")
		}
		n.Value = number
	default:
		p.complain(y.Line, key, "a value of the YAML type %s is not allowed; put quotes around text", strings.TrimPrefix(tag, "!!"))
		n.Value = y.Value
	}
}

// commentOf returns the comments before a key and at the end of its line.
func commentOf(name, value *yaml.Node) string {
	var words []string
	for _, comment := range []string{name.HeadComment, name.LineComment, value.LineComment} {
		for line := range strings.Lines(comment) {
			words = append(words, strings.Fields(strings.TrimLeft(strings.TrimSpace(line), "#"))...)
		}
	}
	return strings.Join(words, " ")
}

// Join appends a key to a path.
func Join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// ErrUnknownKey means that the schema has no such key.
var ErrUnknownKey = errors.New("unknown key")

// Split returns the keys of a path.
func Split(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path, ".")
}
