package upgradeplan

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// Schedule is the maintenance schedule of an upgrade policy. A nil schedule is always open.
type Schedule struct {
	windows []window
}

// window opens at the times of a cron schedule and stays open for a duration.
type window struct {
	starts cron.Schedule
	length time.Duration
}

const (
	minLength = 15 * time.Minute
	maxLength = 7 * 24 * time.Hour
)

// ParseSchedule returns the schedule of a policy, or nil, which is always open, for none. Its errors name the field.
func ParseSchedule(s *csv1.UpgradeSchedule) (*Schedule, error) {
	if s == nil {
		return nil, nil
	}
	switch {
	case (s.GetCron() == "") == (len(s.GetWeekly()) == 0):
		return nil, errors.New("either cron or weekly is required")
	case s.GetCron() != "":
		w, err := parseCron(s.GetCron(), s.GetCronMinutes())
		if err != nil {
			return nil, err
		}
		return &Schedule{windows: []window{w}}, nil
	case s.GetCronMinutes() != 0:
		return nil, errors.New("cron_minutes: is only allowed with cron")
	}
	parsed := &Schedule{}
	for i, weekly := range s.GetWeekly() {
		w, err := parseWeekly(weekly)
		if err != nil {
			return nil, fmt.Errorf("weekly[%d].%w", i, err)
		}
		parsed.windows = append(parsed.windows, w)
	}
	return parsed, nil
}

func parseLength(minutes int32) (time.Duration, error) {
	length := time.Duration(minutes) * time.Minute
	if length < minLength || length > maxLength {
		return 0, fmt.Errorf("%d is not between %d and %d", minutes, minLength/time.Minute, maxLength/time.Minute)
	}
	return length, nil
}

var dayNames = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}

func parseWeekly(w *csv1.WeeklyWindow) (window, error) {
	length, err := parseLength(w.GetMinutes())
	if err != nil {
		return window{}, fmt.Errorf("minutes: %w", err)
	}
	start, err := time.Parse("15:04", w.GetStart())
	if err != nil {
		return window{}, fmt.Errorf("start: %q is not HH:MM", w.GetStart())
	}
	if len(w.GetDays()) == 0 {
		return window{}, errors.New("days: at least one is required")
	}
	var days []string
	for _, name := range w.GetDays() {
		i := slices.Index(dayNames, name)
		if i < 0 {
			return window{}, fmt.Errorf("days: unsupported value %q: supported values: %s", name, strings.Join(dayNames, ", "))
		}
		days = append(days, strconv.Itoa(i))
	}
	starts, err := parser.Parse(fmt.Sprintf("%d %d * * %s", start.Minute(), start.Hour(), strings.Join(days, ",")))
	return window{starts, length}, err
}

var (
	parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	// fieldPattern excludes what the parser accepts beyond the documented syntax: names, question marks and time zones.
	fieldPattern = regexp.MustCompile(`^[0-9*,/-]+$`)
	stepPattern  = regexp.MustCompile(`/([0-9]+)`)
	// maxSteps are the largest steps of the fields.
	maxSteps = [5]int{59, 23, 31, 12, 7}
)

// anyValue marks a day field of a cron.SpecSchedule that does not restrict the days.
const anyValue = 1 << 63

// parseCron parses minute, hour, day of month, month and day of week: *, numbers, ranges, steps and lists of these. As in
// cron, Sunday is 0 and 7. A day matches if it matches both day fields, or either of them if both are restricted; a field
// that begins with * counts as not restricted.
func parseCron(text string, minutes int32) (window, error) {
	fields := strings.Fields(text)
	if len(fields) != 5 {
		return window{}, fmt.Errorf("cron: %q does not have five fields: minute hour day-of-month month day-of-week", text)
	}
	for i, field := range fields {
		if !fieldPattern.MatchString(field) {
			return window{}, fmt.Errorf("cron: %q: only numbers, ranges, steps and lists are supported", field)
		}
		for _, step := range stepPattern.FindAllStringSubmatch(field, -1) {
			if n, err := strconv.Atoi(step[1]); err != nil || n > maxSteps[i] {
				return window{}, fmt.Errorf("cron: %q: the step must be at most %d", field, maxSteps[i])
			}
		}
	}
	anyDay, anyWeekday := strings.HasPrefix(fields[2], "*"), strings.HasPrefix(fields[4], "*")
	fields[4] = sundayAsZero(fields[4])
	parsed, err := parser.Parse(strings.Join(fields, " "))
	if err != nil {
		return window{}, fmt.Errorf("cron: %w", err)
	}
	starts := parsed.(*cron.SpecSchedule)
	starts.Location = time.UTC
	// The parser counts */n as restricted, and a list with a * in it as not restricted.
	starts.Dom, starts.Dow = starts.Dom&^anyValue, starts.Dow&^anyValue
	if anyDay {
		starts.Dom |= anyValue
	}
	if anyWeekday {
		starts.Dow |= anyValue
	}
	length, err := parseLength(minutes)
	if err != nil {
		return window{}, fmt.Errorf("cron_minutes: %w", err)
	}
	if starts.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return window{}, errors.New("cron: matches no day")
	}
	return window{starts, length}, nil
}

// sundayAsZero rewrites the days of week 0 to 7 to the days 0 to 6 that the parser accepts. It leaves alone what it does
// not understand; the parser reports that.
func sundayAsZero(field string) string {
	var parts []string
	for part := range strings.SplitSeq(field, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		from, to, isRange := strings.Cut(span, "-")
		if stepped && !isRange {
			to = "7"
		}
		first, err := strconv.Atoi(from)
		step := 1
		if stepped {
			step, _ = strconv.Atoi(stepText)
		}
		switch {
		case err != nil || step < 1: // * or malformed
			parts = append(parts, part)
		case from == "7" && (!isRange || to == "7"):
			parts = append(parts, "0")
		case to == "7":
			parts = append(parts, fmt.Sprintf("%d-6/%d", first, step))
			if (7-first)%step == 0 {
				parts = append(parts, "0")
			}
		default:
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ",")
}

// Open reports whether a window is open. It also returns when the open window closes, or when the next one opens; zero if
// the schedule is always open, or does not open in the next five years.
func (s *Schedule) Open(now time.Time) (open bool, until time.Time) {
	if s == nil {
		return true, time.Time{}
	}
	now = now.UTC()
	for _, w := range s.windows {
		if start := w.latestStart(now); !start.IsZero() && start.Add(w.length).After(until) {
			open, until = true, start.Add(w.length)
		}
	}
	if open {
		return true, until
	}
	for _, w := range s.windows {
		if start := w.starts.Next(now); until.IsZero() || !start.IsZero() && start.Before(until) {
			until = start
		}
	}
	return false, until
}

// latestStart returns the last start of a window that is still open, or zero. The latest start closes last. Next only searches
// forward, so the search begins at growing distances before now.
func (w window) latestStart(now time.Time) time.Time {
	for back := time.Minute; ; back = min(2*back, w.length) {
		// Next returns times after its argument; a window that started exactly its length ago is closed.
		var latest time.Time
		for start := w.starts.Next(now.Add(-back)); !start.IsZero() && !start.After(now); start = w.starts.Next(start) {
			latest = start
		}
		if !latest.IsZero() || back == w.length {
			return latest
		}
	}
}
