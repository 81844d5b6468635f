package plot

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// tick is a marked place of an axis.
type tick struct {
	at   float64
	text string
}

// valueAxis is the range of the values of a chart.
type valueAxis struct {
	low, high float64
	ticks     []tick
}

// limitFactor is the most by which a limit enlarges the range of values. A limit that is further away would hide how they change.
const limitFactor = 4

// newValueAxis returns an axis for values between low and high. It begins at zero unless there are negative values. wanted is the number of
// ticks that fit.
func newValueAxis(low, high float64, unit Unit, limit *Limit, wanted int) valueAxis {
	if unit == YesOrNo && low >= 0 && high <= 1 {
		return valueAxis{0, 1, []tick{{0, unit.Format(0)}, {1, unit.Format(1)}}}
	}
	low, high = math.Min(low, 0), math.Max(high, 0)
	if limit != nil {
		switch v := limit.Value; {
		case low == high:
			low, high = math.Min(v*1.25, 0), math.Max(v*1.25, 0)
		case v > high && v <= limitFactor*high:
			high = v * 1.1
		case v < low && v >= limitFactor*low:
			low = v * 1.1
		}
	}
	if low == high {
		high = 1
		if unit == Share {
			high = 0.01
		}
	}
	step := unit.step((high - low) / float64(wanted))
	axis := valueAxis{low: math.Floor(low/step+1e-9) * step, high: math.Ceil(high/step-1e-9) * step}
	for i := math.Round(axis.low / step); i <= math.Round(axis.high/step); i++ {
		axis.ticks = append(axis.ticks, tick{i * step, unit.formatTick(i*step, step)})
	}
	return axis
}

// secondSteps are the distances of ticks of durations between a second and a day, in seconds. Longer ones are decimal numbers of days.
var secondSteps = []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, day}

// day is the number of seconds of a day.
const day = 86400.0

// step returns the least suitable distance of ticks that is not below a distance.
func (u Unit) step(least float64) float64 {
	switch {
	case u == Seconds && least > secondSteps[len(secondSteps)-1]:
		return day * decimalStep(least/day)
	case u == Seconds && least > 0.5:
		i, _ := slices.BinarySearch(secondSteps, least)
		return secondSteps[i]
	case u == Bytes && least > 1:
		unit := math.Pow(1024, math.Floor(math.Log(least)/math.Log(1024)))
		return unit * decimalStep(least/unit)
	case u == Count && least < 1:
		return 1
	}
	return decimalStep(least)
}

// decimalStep returns the least number that is not below least and is 1, 2 or 5 times a power of 10.
func decimalStep(least float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, factor := range []float64{1, 2, 5} {
		if factor*power >= least*(1-1e-9) {
			return factor * power
		}
	}
	return 10 * power
}

// formatTick returns the text of a tick in the multiple of the unit that suits the distance of the ticks.
func (u Unit) formatTick(value, step float64) string {
	size := math.Abs(value)
	if u == Seconds { // 60 s and not 1 min next to 30 s
		size = math.Max(step, 1e-6)
		for _, larger := range []float64{day, 3600, 60} {
			if step >= larger && math.Mod(step, larger) == 0 {
				return trimZeros(strconv.FormatFloat(value/larger, 'f', 0, 64)) + map[float64]string{day: " d", 3600: " h", 60: " min"}[larger]
			}
		}
		if step >= 0.1 {
			return trimZeros(strconv.FormatFloat(value, 'f', 1, 64)) + " s"
		}
	}
	scaled, suffix := u.scale(size, value)
	scaledStep, _ := u.scale(size, step)
	decimals := max(0, int(math.Ceil(-math.Log10(scaledStep)-1e-9)))
	return trimZeros(strconv.FormatFloat(scaled, 'f', decimals, 64)) + suffix
}

// timeSteps are the distances of ticks of times.
var timeSteps = []time.Duration{
	time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute,
	30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 48 * time.Hour, 7 * 24 * time.Hour, 28 * 24 * time.Hour,
}

// timeTicks returns at most wanted+1 ticks of a period, in seconds since its begin. Their texts are times of day, or dates at midnight, in UTC.
func timeTicks(from, to time.Time, wanted int) []tick {
	step := timeSteps[len(timeSteps)-1]
	for _, each := range timeSteps {
		if to.Sub(from) <= time.Duration(wanted)*each {
			step = each
			break
		}
	}
	var ticks []tick
	first := from.UTC().Truncate(step)
	if first.Before(from) {
		first = first.Add(step)
	}
	for at := first; !at.After(to) && len(ticks) <= wanted; at = at.Add(step) {
		layout := "15:04"
		switch {
		case at.Truncate(24*time.Hour).Equal(at) && to.Sub(from) > 12*time.Hour:
			layout = "2 Jan"
		case step < time.Minute:
			layout = "15:04:05"
		}
		ticks = append(ticks, tick{at.Sub(from).Seconds(), at.Format(layout)})
	}
	return ticks
}
