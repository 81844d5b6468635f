package release

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/wire"
)

// Graph is an update graph of the Cincinnati protocol (GET …/v1/graph): the releases of one channel and architecture as nodes,
// the upgrade edges between them by index of the nodes, and the edges with risks by version.
type Graph struct {
	Version          int               `json:"version"`
	Nodes            []Node            `json:"nodes"`
	Edges            [][2]int          `json:"edges"`
	ConditionalEdges []ConditionalEdge `json:"conditionalEdges"`
}

// Node is a release.
type Node struct {
	Version  string            `json:"version"`
	Payload  string            `json:"payload"`
	Metadata map[string]string `json:"metadata"`
}

// Keys of the metadata of nodes that are served and read.
const (
	metadataChannels = "io.openshift.upgrades.graph.release.channels"
	metadataDigest   = "io.openshift.upgrades.graph.release.manifestref"
	metadataArch     = "release.openshift.io/architecture"
	metadataURL      = "url"
)

// ConditionalEdge is a group of edges with the same risks.
type ConditionalEdge struct {
	Edges []VersionEdge `json:"edges"`
	Risks []GraphRisk   `json:"risks"`
}

// VersionEdge is an edge between two versions.
type VersionEdge struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// GraphRisk is a Risk in a Graph.
type GraphRisk struct {
	URL           string         `json:"url"`
	Name          string         `json:"name"`
	Message       string         `json:"message"`
	MatchingRules []MatchingRule `json:"matchingRules"`
}

// MatchingRule is a Rule in a Graph.
type MatchingRule struct {
	Type   string      `json:"type"`
	PromQL *PromQLRule `json:"promql,omitempty"`
}

// PromQLRule is a query in a MatchingRule.
type PromQLRule struct {
	PromQL string `json:"promql"`
}

// Architectures are the architectures of graphs. A payload for several architectures is in the graph of multi and in the graph
// of each architecture.
var Architectures = []string{"amd64", "arm64", "multi"}

// Serves reports whether a release has a payload for an architecture of the protocol.
func (r *Release) Serves(arch string) bool {
	return r.Architecture == "Multi" || strings.EqualFold(r.Architecture, arch)
}

// Graph returns the update graph of a channel for an architecture. A channel without releases has an empty graph.
func (c *Catalog) Graph(channel, arch string) *Graph {
	g := &Graph{Version: 1, Nodes: []Node{}, Edges: [][2]int{}, ConditionalEdges: []ConditionalEdge{}}
	indexes := map[Version]int{}
	for _, r := range c.releases {
		if !r.In(channel) || !r.Serves(arch) {
			continue
		}
		indexes[r.Version] = len(g.Nodes)
		metadata := map[string]string{metadataChannels: strings.Join(r.Channels, ","), metadataDigest: r.Digest}
		if r.Architecture == "Multi" {
			metadata[metadataArch] = "multi"
		}
		if r.URL != "" {
			metadata[metadataURL] = r.URL
		}
		g.Nodes = append(g.Nodes, Node{Version: r.Version.String(), Payload: r.Image, Metadata: metadata})
	}
	for between, e := range c.edges {
		from, known := indexes[between.from]
		to, toKnown := indexes[between.to]
		switch {
		case !known || !toKnown:
		case len(e.risks) == 0:
			g.Edges = append(g.Edges, [2]int{from, to})
		default:
			g.ConditionalEdges = append(g.ConditionalEdges, ConditionalEdge{Edges: []VersionEdge{{between.from.String(), between.to.String()}}, Risks: graphRisks(e.risks)})
		}
	}
	slices.SortFunc(g.Edges, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	slices.SortFunc(g.ConditionalEdges, func(a, b ConditionalEdge) int {
		x, y := a.Edges[0], b.Edges[0]
		return slices.Compare([]int{indexes[must(x.To)], indexes[must(x.From)]}, []int{indexes[must(y.To)], indexes[must(y.From)]})
	})
	return g
}

// must parses the text of a Version.
func must(s string) Version {
	v, _ := ParseVersion(s)
	return v
}

func graphRisks(risks []Risk) []GraphRisk {
	var list []GraphRisk
	for _, r := range risks {
		g := GraphRisk{URL: r.URL, Name: r.Name, Message: r.Message}
		for _, rule := range r.Rules {
			m := MatchingRule{Type: rule.Type}
			if rule.Type == "PromQL" {
				m.PromQL = &PromQLRule{PromQL: rule.PromQL}
			}
			g.MatchingRules = append(g.MatchingRules, m)
		}
		list = append(list, g)
	}
	return list
}

// ParseGraph reads a served graph. It leaves out nodes, edges and conditional edges that are malformed, or that refer to nodes that do not exist, so
// that one of them hides no others: ignored has the reason for each. It returns an error if the text is not a graph. Unknown fields are ignored,
// as the protocol requires.
func ParseGraph(text []byte) (g *Graph, ignored []string, err error) {
	var parts struct {
		Version          int               `json:"version"`
		Nodes            []json.RawMessage `json:"nodes"`
		Edges            []json.RawMessage `json:"edges"`
		ConditionalEdges []json.RawMessage `json:"conditionalEdges"`
	}
	if err := json.Unmarshal(text, &parts); err != nil {
		return nil, nil, fmt.Errorf("read an update graph: %w", err)
	}
	ignore := func(reason func() string) { ignored = append(ignored, reason()) }
	g = &Graph{Version: parts.Version, Nodes: make([]Node, len(parts.Nodes))} // edges have indexes of nodes
	wire.Elements("nodes", "version", slices.All(parts.Nodes), func(i int, n Node) error {
		if n.Version == "" {
			return errors.New("it has no version")
		}
		g.Nodes[i] = n
		return nil
	}, ignore)
	wire.Elements("edges", "", slices.All(parts.Edges), func(_ int, e []int) error {
		if len(e) != 2 || min(e[0], e[1]) < 0 || max(e[0], e[1]) >= len(g.Nodes) {
			return errors.New("it does not refer to two nodes that exist")
		}
		g.Edges = append(g.Edges, [2]int(e))
		return nil
	}, ignore)
	wire.Elements("conditionalEdges", "", slices.All(parts.ConditionalEdges), func(_ int, c ConditionalEdge) error {
		g.ConditionalEdges = append(g.ConditionalEdges, c)
		return nil
	}, ignore)
	return g, ignored, nil
}

// FromGraphs returns the catalogue of the graphs of several channels. It leaves out releases whose version is not MAJOR.MINOR.PATCH, such as nightly
// builds, those whose payload has no digest, and those with two payloads, with their edges: one of them hides no others. ignored has the
// reason for each of the latter two. It returns an error if no release is left. Graphs have no EndOfLife and no Kubelet.
func FromGraphs(graphs map[string]*Graph) (c *Catalog, ignored []string, err error) {
	c = &Catalog{edges: map[between]*edge{}}
	known := map[Version]*Release{}
	twice := map[Version]bool{}
	for _, channel := range slices.Sorted(maps.Keys(graphs)) {
		for _, n := range graphs[channel].Nodes {
			v, err := ParseVersion(n.Version)
			if err != nil {
				continue
			}
			_, digest, byDigest := strings.Cut(n.Payload, "@")
			if !byDigest || !digestPattern.MatchString(digest) {
				ignored = append(ignored, fmt.Sprintf("channel %s: release %s: its payload has no digest", channel, n.Version))
				continue
			}
			if r := known[v]; r != nil {
				switch {
				case r.Digest != digest && !twice[v]:
					twice[v] = true
					ignored = append(ignored, fmt.Sprintf("channel %s: release %s: it has two payloads", channel, n.Version))
				case !r.In(channel):
					r.Channels = append(r.Channels, channel)
					slices.Sort(r.Channels)
				}
				continue
			}
			r := &Release{Version: v, Digest: digest, Image: n.Payload, Architecture: "AMD64", Channels: []string{channel}, URL: n.Metadata[metadataURL]}
			if n.Metadata[metadataArch] == "multi" {
				r.Architecture = "Multi"
			}
			known[v] = r
		}
	}
	for v, r := range known {
		if !twice[v] {
			c.releases = append(c.releases, r)
		}
	}
	if len(c.releases) == 0 {
		return nil, ignored, fmt.Errorf("the update graph has no usable release; unusable elements, at most 10: %q", ignored[:min(len(ignored), 10)])
	}
	slices.SortFunc(c.releases, func(a, b *Release) int { return a.Version.Compare(b.Version) })
	for _, g := range graphs {
		c.connectGraph(g)
	}
	return c, ignored, nil
}

// connectGraph adds the edges of a graph between releases of the catalogue. An edge with a risk in one channel has the risk in all channels.
func (c *Catalog) connectGraph(g *Graph) {
	for _, e := range g.Edges {
		if ends, ok := c.between(g.Nodes[e[0]].Version, g.Nodes[e[1]].Version); ok && c.edges[ends] == nil {
			c.edges[ends] = &edge{}
		}
	}
	for _, conditional := range g.ConditionalEdges {
		var risks []Risk
		for _, r := range conditional.Risks {
			risk := Risk{Name: r.Name, URL: r.URL, Message: r.Message}
			for _, m := range r.MatchingRules {
				rule := Rule{Type: m.Type}
				if m.PromQL != nil {
					rule.PromQL = m.PromQL.PromQL
				}
				risk.Rules = append(risk.Rules, rule)
			}
			risks = append(risks, risk)
		}
		for _, e := range conditional.Edges {
			if ends, ok := c.between(e.From, e.To); ok && len(risks) > 0 {
				c.edges[ends] = &edge{risks: risks}
			}
		}
	}
}

// between returns the ends of an edge. It returns false unless both are releases of the catalogue and the first one is older.
func (c *Catalog) between(from, to string) (between, bool) {
	a, err := ParseVersion(from)
	b, toErr := ParseVersion(to)
	if err != nil || toErr != nil || a.Compare(b) >= 0 {
		return between{}, false
	}
	_, known := c.find(a)
	_, toKnown := c.find(b)
	return between{a, b}, known && toKnown
}

// Mentioned returns the channels that the metadata of the releases mention, sorted and without duplicates.
func (g *Graph) Mentioned() []string {
	var channels []string
	for _, n := range g.Nodes {
		for channel := range strings.SplitSeq(n.Metadata[metadataChannels], ",") {
			if channelPattern.MatchString(channel) {
				channels = append(channels, channel)
			}
		}
	}
	slices.Sort(channels)
	return slices.Compact(channels)
}
