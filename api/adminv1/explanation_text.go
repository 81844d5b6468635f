package adminv1

import (
	"maps"
	"slices"
	"strings"
)

// textWidth is the length at which Text breaks lines.
const textWidth = 96

// layerTitles maps the layers to their names in sentences.
var layerTitles = map[string]string{LayerARM: "Cosmos DB", LayerClusterService: "Cluster Service", LayerMaestro: "Maestro",
	LayerMonitor: "the journal of monitor"}

// Text returns the explanation as plain text: one paragraph each for summary, evidence and actions of an item, and
// commands on indented lines.
func (e *Explanation) Text() string {
	var text strings.Builder
	for i, item := range e.Items {
		if i > 0 {
			text.WriteString("\n---\n\n")
		}
		writeParagraph(&text, item.Summary)
		for _, paragraph := range [][]Sentence{item.Evidence, item.Actions} {
			if len(paragraph) > 0 {
				text.WriteByte('\n')
				writeParagraph(&text, paragraph...)
			}
		}
		if item.Command != "" {
			text.WriteString("\n    " + item.Command + "\n")
		}
	}
	if len(e.Facts) > 0 {
		text.WriteByte('\n')
		writeParagraph(&text, e.Facts...)
	}
	for i, layer := range slices.Sorted(maps.Keys(e.Unavailable)) {
		if i == 0 {
			text.WriteByte('\n')
		}
		writeParagraph(&text, Sentence{Text: "This explanation is incomplete: " + layerTitles[layer] + " could not be read: " +
			strings.TrimSuffix(e.Unavailable[layer], ".") + "."})
	}
	return text.String()
}

// writeParagraph writes sentences as lines of at most textWidth characters. Longer words have a line of their own.
func writeParagraph(text *strings.Builder, sentences ...Sentence) {
	length := 0
	for _, sentence := range sentences {
		for word := range strings.FieldsSeq(sentence.Text) {
			characters := len([]rune(word))
			switch {
			case length == 0:
			case length+1+characters > textWidth:
				text.WriteByte('\n')
				length = 0
			default:
				text.WriteByte(' ')
				length++
			}
			text.WriteString(word)
			length += characters
		}
	}
	text.WriteByte('\n')
}
