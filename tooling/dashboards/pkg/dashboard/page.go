package dashboard

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// Page returns the description of dashboards as Markdown, for a page in a folder of the repository.
func Page(dashboards []*Dashboard, folder string) string {
	var text strings.Builder
	text.WriteString("\n| dashboard | question |\n|---|---|\n")
	for _, d := range dashboards {
		fmt.Fprintf(&text, "| [%s](#%s) | %s |\n", d.Title, anchor(d.Title), d.Question)
	}
	for _, d := range dashboards {
		fmt.Fprintf(&text, "\n## %s\n\n%s File: `%s.json`.\n", d.Title, d.Question, d.Name)
		for _, v := range d.Variables {
			fmt.Fprintf(&text, "The variable `%s` selects values of the label `%s`.\n", v.Name, v.Label)
		}
		text.WriteString("\n| panel | unit | meaning | bad | runbook |\n|---|---|---|---|---|\n")
		for _, row := range d.Rows {
			for _, p := range row.Panels {
				fmt.Fprintf(&text, "| %s: %s | %s | %s | %s | %s |\n", row.Title, p.Title, p.Unit, p.Meaning, p.Limit.Text(p.Unit), link(p.Runbook, folder))
			}
		}
	}
	return text.String() + "\n"
}

// link returns a link to a page of the repository, as seen from a folder.
func link(page, folder string) string {
	if page == "" {
		return ""
	}
	relative, err := filepath.Rel(folder, page)
	if err != nil {
		panic(err) // both are relative paths of the repository
	}
	name, _, _ := strings.Cut(path.Base(page), "#")
	if name == "README.md" {
		name = path.Base(path.Dir(page))
	}
	return fmt.Sprintf("[%s](%s)", strings.TrimSuffix(name, ".md"), filepath.ToSlash(relative))
}

// anchor returns the anchor of a heading.
func anchor(title string) string { return strings.ReplaceAll(strings.ToLower(title), " ", "-") }
