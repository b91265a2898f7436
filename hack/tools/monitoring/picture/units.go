// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strconv"
)

const mebibyte = 1 << 20

// write writes a value in a unit of Grafana.
func write(value float64, unit string) string {
	switch unit {
	case "s":
		return duration(value)
	case "percentunit":
		return short(value*100) + "%"
	case "bytes":
		return short(value/mebibyte) + " MiB"
	case "ops", "reqps":
		return short(value) + "/s"
	}
	return short(value)
}

// short writes three digits, and none that say nothing.
func short(value float64) string {
	if math.Abs(value) >= 100 {
		return strconv.FormatFloat(math.Round(value), 'f', -1, 64)
	}
	rounded, _ := strconv.ParseFloat(fmt.Sprintf("%.3g", value), 64)
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// duration writes seconds.
func duration(seconds float64) string {
	switch {
	case math.IsInf(seconds, 1):
		return "longer"
	case seconds == 0:
		return "0 s"
	case seconds < 1:
		return short(seconds*1000) + " ms"
	case seconds >= 120:
		return short(seconds/60) + " min"
	}
	return short(seconds) + " s"
}
