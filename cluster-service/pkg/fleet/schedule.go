package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// Schedule says when upgrades by a policy may begin. All times are UTC.
type Schedule struct {
	windows []window
}

// window opens at the minutes that match and stays open for a while.
type window struct {
	opens func(at time.Time) bool
	open  time.Duration
}

const (
	minWindow = 15 * time.Minute
	maxWindow = 7 * 24 * time.Hour
	// horizon is how far ahead the next opening is looked for: leap days are four years apart, eight around 2100.
	horizon = 8 * 366 * 24 * time.Hour
)

// ParseSchedule reads a schedule; nil is one that is always open.
func ParseSchedule(s *csv1.UpgradeSchedule) (*Schedule, error) {
	if s == nil {
		return nil, nil
	}
	switch {
	case (s.GetCron() == "") == (len(s.GetWeekly()) == 0):
		return nil, errors.New("either cron or weekly is required")
	case s.GetCron() != "":
		opens, err := parseCron(s.GetCron())
		if err != nil {
			return nil, fmt.Errorf("cron: %w", err)
		}
		open, err := windowLength(s.GetCronMinutes())
		if err != nil {
			return nil, fmt.Errorf("cron_minutes: %w", err)
		}
		schedule := &Schedule{windows: []window{{opens, open}}}
		if schedule.next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
			return nil, errors.New("cron: no day matches it")
		}
		return schedule, nil
	case s.GetCronMinutes() != 0:
		return nil, errors.New("cron_minutes: goes with cron")
	}
	schedule := &Schedule{}
	for i, w := range s.GetWeekly() {
		parsed, err := parseWeekly(w)
		if err != nil {
			return nil, fmt.Errorf("weekly[%d].%w", i, err)
		}
		schedule.windows = append(schedule.windows, parsed)
	}
	return schedule, nil
}

func windowLength(minutes int32) (time.Duration, error) {
	open := time.Duration(minutes) * time.Minute
	if open < minWindow || open > maxWindow {
		return 0, fmt.Errorf("%d is not between %d and %d", minutes, minWindow/time.Minute, maxWindow/time.Minute)
	}
	return open, nil
}

var dayNames = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}

func parseWeekly(w *csv1.WeeklyWindow) (window, error) {
	open, err := windowLength(w.GetMinutes())
	if err != nil {
		return window{}, fmt.Errorf("minutes: %w", err)
	}
	start, err := time.Parse("15:04", w.GetStart())
	if err != nil {
		return window{}, fmt.Errorf("start: %q is not HH:MM", w.GetStart())
	}
	if len(w.GetDays()) == 0 {
		return window{}, errors.New("days: at least one is needed")
	}
	var days [7]bool
	for _, name := range w.GetDays() {
		i := slices.Index(dayNames, name)
		if i < 0 {
			return window{}, fmt.Errorf("days: %q is none of %s", name, strings.Join(dayNames, ", "))
		}
		days[i] = true
	}
	return window{func(at time.Time) bool {
		return days[at.Weekday()] && at.Hour() == start.Hour() && at.Minute() == start.Minute()
	}, open}, nil
}

// parseCron reads minute, hour, day of month, month and day of week: *, numbers, ranges, steps and lists of these. As cron
// has it, a day matches when it matches both fields of days, or either when both are restricted.
func parseCron(text string) (func(at time.Time) bool, error) {
	fields := strings.Fields(text)
	if len(fields) != 5 {
		return nil, fmt.Errorf("%q has not five fields: minute hour day-of-month month day-of-week", text)
	}
	bounds := [5][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 7}}
	var sets [5]map[int]bool
	for i, field := range fields {
		set, err := cronField(field, bounds[i][0], bounds[i][1])
		if err != nil {
			return nil, err
		}
		sets[i] = set
	}
	if sets[4][7] {
		sets[4][0] = true // Sunday is 0 and 7
	}
	anyDay, anyWeekday := strings.HasPrefix(fields[2], "*"), strings.HasPrefix(fields[4], "*")
	return func(at time.Time) bool {
		day, weekday := sets[2][at.Day()], sets[4][int(at.Weekday())]
		matches := day && weekday
		if !anyDay && !anyWeekday {
			matches = day || weekday
		}
		return matches && sets[0][at.Minute()] && sets[1][at.Hour()] && sets[3][int(at.Month())]
	}, nil
}

func cronField(field string, low, high int) (map[int]bool, error) {
	set := map[int]bool{}
	for part := range strings.SplitSeq(field, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		first, last, step := low, high, 1
		if span != "*" {
			from, to, isRange := strings.Cut(span, "-")
			var err, toErr error
			first, err = strconv.Atoi(from)
			last = first
			if isRange {
				last, toErr = strconv.Atoi(to)
			} else if stepped {
				last = high
			}
			if err != nil || toErr != nil || first < low || last > high || first > last {
				return nil, fmt.Errorf("%q is not within %d to %d", part, low, high)
			}
		}
		if stepped {
			var err error
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 || step > high {
				return nil, fmt.Errorf("%q has no step", part)
			}
		}
		for n := first; n <= last; n += step {
			set[n] = true
		}
	}
	return set, nil
}

// Open says whether a window is open, and until when it is, or from when one is again; zero when it is always open.
func (s *Schedule) Open(now time.Time) (open bool, until time.Time) {
	if s == nil {
		return true, time.Time{}
	}
	minute := now.UTC().Truncate(time.Minute)
	for _, w := range s.windows {
		// The latest opening stays open longest.
		for at := minute; now.Sub(at) < w.open; at = at.Add(-time.Minute) {
			if w.opens(at) {
				if closes := at.Add(w.open); closes.After(until) {
					open, until = true, closes
				}
				break
			}
		}
	}
	if open {
		return true, until
	}
	return false, s.next(now)
}

// next is when a window opens next; zero when none does.
func (s *Schedule) next(now time.Time) time.Time {
	var first time.Time
	for _, w := range s.windows {
		for at := now.UTC().Truncate(time.Minute).Add(time.Minute); at.Sub(now) < horizon && (first.IsZero() || at.Before(first)); at = at.Add(time.Minute) {
			if w.opens(at) {
				first = at
				break
			}
		}
	}
	return first
}
