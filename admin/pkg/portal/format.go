package portal

import (
	"fmt"
	"html/template"
	"strings"
	"time"
	"unicode"
)

// formatAge returns a duration in its two largest units, for example 3 h 20 min.
func formatAge(d time.Duration) string {
	d = max(d, 0)
	for i, unit := range ageUnits {
		if d >= unit.size || i == len(ageUnits)-1 {
			text := fmt.Sprintf("%d %s", d/unit.size, unit.name)
			if i < 2 {
				if rest := d % unit.size / ageUnits[i+1].size; rest > 0 {
					text += fmt.Sprintf(" %d %s", rest, ageUnits[i+1].name)
				}
			}
			return text
		}
	}
	return ""
}

// ageUnits are the units of ages, as in portal.js.
var ageUnits = []struct {
	name string
	size time.Duration
}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}}

// moment returns the time in a value of the API: a time.Time, a pointer to one, or a timestamp of protobuf.
func moment(value any) (time.Time, bool) {
	switch t := value.(type) {
	case time.Time:
		return t, !t.IsZero()
	case *time.Time:
		if t != nil {
			return *t, !t.IsZero()
		}
	case interface{ AsTime() time.Time }:
		when := t.AsTime()
		return when, when.Unix() > 0
	}
	return time.Time{}, false
}

// ageElement returns the age of a time as an element that also has the time in UTC.
func ageElement(now time.Time, value any) template.HTML {
	t, known := moment(value)
	if !known {
		return `<span class="portal-none">–</span>`
	}
	t = t.UTC()
	text := t.Format("2006-01-02 15:04:05") + " UTC"
	if t.After(now) {
		return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">in %s</time>`, t.Format(time.RFC3339), text, formatAge(t.Sub(now)))) // digits and units
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s" data-age>%s</time>`, t.Format(time.RFC3339), text, formatAge(now.Sub(t)))) // digits and units
}

// timeElement returns a time in UTC and its age.
func timeElement(now time.Time, value any) template.HTML {
	t, known := moment(value)
	if !known {
		return `<span class="portal-none">–</span>`
	}
	t = t.UTC()
	suffix := " ago"
	if t.After(now) {
		suffix = ""
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s">%s UTC</time> <span class="portal-age">%s%s</span>`, t.Format(time.RFC3339), t.Format("2006-01-02 15:04:05"), ageElement(now, t), suffix)) // digits and units
}

// status is a state with its meaning, which is shown by a word, an icon and a color.
type status struct {
	Text string
	// Kind is success, danger, warning, info or neutral: the modifier of PatternFly's label.
	Kind string
	Icon string
}

// statusKinds are the kinds of known states, in lower case. Other states are neutral.
var statusKinds = map[string]string{
	"ready": "success", "succeeded": "success", "available": "success", "done": "success", "active": "success", "completed": "success", "issued": "success", "true": "success",
	"failed": "danger", "unavailable": "danger", "denied": "danger", "stuck": "danger", "firing": "danger", "unreachable": "danger", "overdue": "danger", "invalid": "danger", "lost": "danger",
	"unresponsive": "danger", "notready": "warning", "diskfull": "danger", "critical": "danger", "refused": "danger",
	"waiting": "warning", "requested": "warning", "cordoned": "warning", "draining": "warning", "paused": "warning", "silent": "warning", "warning": "warning", "pending": "warning",
	"deleting": "info", "running": "info", "accepted": "info", "approved": "info", "updating": "info", "provisioning": "info", "installing": "info", "upgrading": "info", "forced": "warning",
	"controlplane": "info", "nodepools": "info", "rollingout": "info", "passed": "success", "acknowledged": "warning", "aborted": "warning", "open": "success", "applied": "success", "repairedbyitself": "info", "needsadecision": "warning", "notapplied": "warning", "page": "danger", "ticket": "warning", "removed": "warning", "complete": "success", "interrupted": "warning", "inprogress": "info", "inuse": "success",
}

// statusIcons are the icons of the kinds.
var statusIcons = map[string]string{"success": "check", "danger": "error", "warning": "warning", "info": "progress", "neutral": "dot"}

// statusOf returns the status of a state. It accepts the names of enumerations, for example CLUSTER_PHASE_READY.
func statusOf(value any) status {
	text := words(fmt.Sprint(value))
	kind, known := statusKinds[strings.ReplaceAll(strings.ToLower(text), " ", "")]
	if !known {
		kind = "neutral"
	}
	if text == "" {
		text = "Unknown"
	}
	return status{Text: text, Kind: kind, Icon: statusIcons[kind]}
}

// enumerations are the prefixes of names in protobuf enumerations.
var enumerations = []string{"CLUSTER_PHASE_", "NODE_POOL_PHASE_", "PROVISION_SHARD_STATE_", "DELETION_STEP_STATE_", "UPGRADE_STATE_", "UPGRADE_STEP_STATE_", "BREAK_GLASS_CLASS_",
	"BREAK_GLASS_CREDENTIAL_STATE_", "CONDITION_STATUS_", "UPGRADE_GATE_STATE_", "COMPONENT_STATE_"}

// words returns the name of a state as words: the name of an enumeration in lower case, and CamelCase and snake_case with spaces.
func words(text string) string {
	for _, prefix := range enumerations {
		if rest, found := strings.CutPrefix(text, prefix); found {
			text = strings.ToLower(rest)
			break
		}
	}
	var b strings.Builder
	previous := ' '
	for i, r := range strings.NewReplacer("_", " ", "-", " ").Replace(text) {
		switch {
		case i == 0:
			b.WriteRune(unicode.ToUpper(r))
		case unicode.IsUpper(r) && unicode.IsLower(previous):
			b.WriteRune(' ')
			b.WriteRune(unicode.ToLower(r))
		default:
			b.WriteRune(r)
		}
		previous = r
	}
	return b.String()
}

// shortID returns the beginning of an identifier, which is enough to tell a few apart.
func shortID(text string) string {
	if len(text) > 8 {
		return text[:8]
	}
	return text
}

// percent returns a part of a whole, 0 to 100.
func percent(part, whole int32) int32 {
	if whole <= 0 {
		return 0
	}
	return min(100*part/whole, 100)
}

// icons are the paths of the icons, for a view box of 16 by 16.
var icons = map[string]template.HTML{
	"check":    `<path d="M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zm3.6 5.3-4.2 4.9a.8.8 0 0 1-1.2 0L4.4 9.3a.8.8 0 1 1 1.2-1.1l1.2 1.3 3.6-4.2a.8.8 0 1 1 1.2 1z"/>`,
	"error":    `<path d="M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zm0 3.5c.5 0 .8.4.8.8v3.4a.8.8 0 0 1-1.6 0V5.3c0-.4.3-.8.8-.8zm0 8a1 1 0 1 1 0-2 1 1 0 0 1 0 2z"/>`,
	"warning":  `<path d="M8.9 2.1a1 1 0 0 0-1.8 0L1.1 13a1 1 0 0 0 .9 1.5h12a1 1 0 0 0 .9-1.5zM8 5.7c.5 0 .8.4.8.8V9a.8.8 0 0 1-1.6 0V6.500c0-.4.3-.8.8-.8zm0 7a1 1 0 1 1 0-2 1 1 0 0 1 0 2z"/>`,
	"progress": `<path d="M8 1.200a6.800 6.800 0 1 0 6.800 6.800h-1.700A5.100 5.100 0 1 1 8 2.900z"/><path d="M9.400 1.400v1.800a5.100 5.100 0 0 1 3.400 3.400h1.800a6.800 6.800 0 0 0-5.200-5.200z" opacity=".45"/>`,
	"dot":      `<circle cx="8" cy="8" r="3.500"/>`,
	"search":   `<path d="M7 1.500a5.500 5.500 0 1 0 3.300 9.900l3 3a.8.8 0 0 0 1.100-1.100l-3-3A5.500 5.500 0 0 0 7 1.500zm0 1.600a3.900 3.900 0 1 1 0 7.800 3.900 3.900 0 0 1 0-7.800z"/>`,
	"user":     `<path d="M8 8a3.300 3.300 0 1 0 0-6.600A3.300 3.300 0 0 0 8 8zm0 1.300c-3.400 0-6.200 1.700-6.200 3.900 0 .8.6 1.400 1.400 1.400h9.600c.8 0 1.400-.6 1.400-1.400 0-2.200-2.800-3.900-6.200-3.900z"/>`,
	"copy":     `<path d="M5 1.500h6.500c.8 0 1.500.7 1.500 1.500v7.500h-1.500V3H5z"/><path d="M3.500 4.500H9c.8 0 1.500.7 1.500 1.500v7c0 .8-.7 1.500-1.500 1.500H3.500C2.700 14.500 2 13.800 2 13V6c0-.8.7-1.500 1.500-1.500z"/>`,
	"next":     `<path d="M5.500 2.500 11 8l-5.500 5.500" fill="none" stroke="currentColor" stroke-width="1.800" stroke-linecap="round" stroke-linejoin="round"/>`,
}

// icon returns an icon that assistive technologies ignore: a word beside it has the meaning.
func icon(name string) (template.HTML, error) {
	path, known := icons[name]
	if !known {
		return "", fmt.Errorf("no icon %s", name)
	}
	return `<svg class="portal-icon" viewBox="0 0 16 16" width="1em" height="1em" fill="currentColor" aria-hidden="true" focusable="false">` + path + `</svg>`, nil
}
