package upgradeplan_test

import (
	"strings"
	"testing"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/upgradeplan"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse("2006-01-02 15:04:05", text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func weekly(days, start string, minutes int32) *csv1.UpgradeSchedule {
	return &csv1.UpgradeSchedule{Weekly: []*csv1.WeeklyWindow{{Days: strings.Fields(days), Start: start, Minutes: minutes}}}
}

func TestScheduleOpens(t *testing.T) {
	cron := func(text string, minutes int32) *csv1.UpgradeSchedule {
		return &csv1.UpgradeSchedule{Cron: text, CronMinutes: minutes}
	}
	// 2026-11-21 is a Saturday.
	tests := map[string]struct {
		reason string
		spec   *csv1.UpgradeSchedule
		now    string
		open   bool
		until  string
	}{
		"Always":              {"no schedule closes", nil, "2026-11-21 03:00:00", true, ""},
		"Weekly, inside":      {"it opened an hour ago", weekly("SAT", "02:00", 120), "2026-11-21 03:00:00", true, "2026-11-21 04:00:00"},
		"Weekly, at its end":  {"the end is not part of it", weekly("SAT", "02:00", 60), "2026-11-21 03:00:00", false, "2026-11-28 02:00:00"},
		"Weekly, last second": {"until its end it is open", weekly("SAT", "02:00", 60), "2026-11-21 02:59:59", true, "2026-11-21 03:00:00"},
		"Weekly, over night":  {"it opened the day before", weekly("FRI", "22:00", 480), "2026-11-21 03:00:00", true, "2026-11-21 06:00:00"},
		"Weekly, another day": {"it opens on Monday", weekly("MON WED", "22:00", 60), "2026-11-21 03:00:00", false, "2026-11-23 22:00:00"},
		"Cron, each night":    {"at two for three hours", cron("0 2 * * *", 180), "2026-11-21 03:00:00", true, "2026-11-21 05:00:00"},
		"Cron, closed":        {"the next night", cron("0 2 * * *", 30), "2026-11-21 03:00:00", false, "2026-11-22 02:00:00"},
		"Cron, steps":         {"every six hours", cron("30 */6 * * *", 15), "2026-11-21 03:00:00", false, "2026-11-21 06:30:00"},
		"Cron, weekdays":      {"Sunday is 7, too", cron("0 1 * * 7", 60), "2026-11-21 03:00:00", false, "2026-11-22 01:00:00"},
		"Cron, to Sunday":     {"5-7 includes Sunday", cron("0 1 * * 5-7/2", 60), "2026-11-21 03:00:00", false, "2026-11-22 01:00:00"},
		"Cron, from Sunday":   {"7-7 is Sunday", cron("0 1 * * 7-7", 60), "2026-11-21 03:00:00", false, "2026-11-22 01:00:00"},
		"Cron, stepped days":  {"*/2 does not restrict the days: both fields count", cron("0 1 */2 * 1", 60), "2026-11-21 03:00:00", false, "2026-11-23 01:00:00"},
		"Cron, list with any": {"the list does not begin with *: either day field counts", cron("0 1 23 * 2,*", 60), "2026-11-21 03:00:00", false, "2026-11-22 01:00:00"},
		"Cron, all week":      {"0-7 is every day", cron("0 1 * * 0-7", 60), "2026-11-21 03:00:00", false, "2026-11-22 01:00:00"},
		"Cron, every minute":  {"a week from now", cron("* * * * *", 10080), "2026-11-21 03:00:00", true, "2026-11-28 03:00:00"},
		"Cron, either day":    {"both fields of days are restricted: either counts", cron("0 1 23 * 2", 60), "2026-11-21 03:00:00", false, "2026-11-23 01:00:00"},
		"Cron, overlapping":   {"the latest opening counts", cron("0 * * * *", 180), "2026-11-21 03:30:00", true, "2026-11-21 06:00:00"},
		"Cron, leap day":      {"it takes some years", cron("0 0 29 2 *", 60), "2026-11-21 03:00:00", false, "2028-02-29 00:00:00"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			parsed, err := upgradeplan.ParseSchedule(tc.spec)
			if err != nil {
				t.Fatal(err)
			}
			open, until := parsed.Open(at(t, tc.now))
			got := ""
			if !until.IsZero() {
				got = until.Format("2006-01-02 15:04:05")
			}
			if open != tc.open || got != tc.until {
				t.Errorf("%s: open %v until %s, want %v until %s", tc.reason, open, got, tc.open, tc.until)
			}
		})
	}
}

func TestBadSchedules(t *testing.T) {
	for name, tc := range map[string]struct {
		spec *csv1.UpgradeSchedule
		says string
	}{
		"Empty":         {&csv1.UpgradeSchedule{}, "either cron or weekly"},
		"Both":          {&csv1.UpgradeSchedule{Cron: "* * * * *", Weekly: weekly("MON", "01:00", 60).Weekly}, "either cron or weekly"},
		"Four fields":   {&csv1.UpgradeSchedule{Cron: "* * * *", CronMinutes: 60}, "five fields"},
		"Out of bounds": {&csv1.UpgradeSchedule{Cron: "60 * * * *", CronMinutes: 60}, "maximum (59)"},
		"Backwards":     {&csv1.UpgradeSchedule{Cron: "0 9-8 * * *", CronMinutes: 60}, "beyond end of range"},
		"No step":       {&csv1.UpgradeSchedule{Cron: "0 */0 * * *", CronMinutes: 60}, "step"},
		"Large step":    {&csv1.UpgradeSchedule{Cron: "*/60 * * * *", CronMinutes: 60}, "at most 59"},
		"Day name":      {&csv1.UpgradeSchedule{Cron: "0 0 * * MON", CronMinutes: 60}, "only numbers"},
		"Question mark": {&csv1.UpgradeSchedule{Cron: "0 0 ? * 1", CronMinutes: 60}, "only numbers"},
		"Day 8":         {&csv1.UpgradeSchedule{Cron: "0 0 * * 8", CronMinutes: 60}, "maximum (6)"},
		"A word":        {&csv1.UpgradeSchedule{Cron: "@daily", CronMinutes: 60}, "five fields"},
		"No such day":   {&csv1.UpgradeSchedule{Cron: "0 0 31 2 *", CronMinutes: 60}, "no day"},
		"Too short":     {&csv1.UpgradeSchedule{Cron: "0 0 * * *", CronMinutes: 5}, "cron_minutes"},
		"Too long":      {weekly("MON", "01:00", 20000), "weekly[0].minutes"},
		"No days":       {weekly("", "01:00", 60), "weekly[0].days"},
		"Unknown day":   {weekly("MONDAY", "01:00", 60), "MONDAY"},
		"Unknown time":  {weekly("MON", "25:00", 60), "HH:MM"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := upgradeplan.ParseSchedule(tc.spec); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want an error with %q", err, tc.says)
			}
		})
	}
}

func FuzzSchedule(f *testing.F) {
	f.Add("0 2 * * 6", int32(60))
	f.Add("*/15,3-9/2 0-23 1 1 0-7", int32(15))
	f.Fuzz(func(t *testing.T, cron string, minutes int32) {
		parsed, err := upgradeplan.ParseSchedule(&csv1.UpgradeSchedule{Cron: cron, CronMinutes: minutes})
		if err != nil {
			return
		}
		now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
		open, until := parsed.Open(now)
		if until.IsZero() || !until.After(now) {
			t.Errorf("%q: open %v until %s", cron, open, until)
		}
		if again, _ := parsed.Open(until); !open && !again {
			t.Errorf("%q is closed at %s, want it open", cron, until)
		}
	})
}
