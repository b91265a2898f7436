// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql"

	"github.com/sidecar-termination/operator/hack/tools/monitoring/dashboard"
)

// line is a series of a panel.
type line struct {
	name   string
	values []promql.FPoint
}

// plot is the part of a panel that is between its axes.
type plot struct {
	area
	from, to int64
	top      float64
}

func (p plot) at(point promql.FPoint) (x, y float64) {
	return p.x + p.width*float64(point.T-p.from)/float64(p.to-p.from), p.bottom() - p.height*point.F/p.top
}

func drawLines(ctx context.Context, c *canvas, at area, panel dashboard.Panel, recorded *samples) error {
	var lines []line
	for _, target := range panel.Targets {
		matrix, err := recorded.over(ctx, target.Expression)
		if err != nil {
			return err
		}
		for _, series := range matrix {
			points := slices.DeleteFunc(slices.Clone(series.Floats), func(p promql.FPoint) bool { return math.IsNaN(p.F) || math.IsInf(p.F, 0) })
			lines = append(lines, line{legend(target.Legend, series.Metric), points})
		}
	}
	stacked := panel.FieldConfig.Defaults.Custom.Stacking.Mode == "normal"
	bases := make([][]promql.FPoint, len(lines))
	if stacked {
		bases = stack(lines)
	}
	highest := 0.0
	for _, l := range lines {
		for _, point := range l.values {
			highest = max(highest, point.F)
		}
	}
	p := axes(c, at, highest, panel.FieldConfig.Defaults.Unit, recorded)
	for index, l := range lines {
		drawLine(c, p, l.values, bases[index], palette[index%len(palette)])
	}
	drawLegend(c, area{at.x, at.bottom() - 12, at.width, 12}, lines)
	if len(lines) == 0 {
		c.text(p.x+p.width/2, p.y+p.height/2, 13, faint, "middle", "400", "No data: none has happened")
	}
	return nil
}

// stack puts each line upon those before it, and returns what each stands on.
func stack(lines []line) [][]promql.FPoint {
	sums := map[int64]float64{}
	bases := make([][]promql.FPoint, len(lines))
	for index := range lines {
		for i, point := range lines[index].values {
			bases[index] = append(bases[index], promql.FPoint{T: point.T, F: sums[point.T]})
			sums[point.T] += point.F
			lines[index].values[i].F = sums[point.T]
		}
	}
	return bases
}

func drawLine(c *canvas, p plot, points, base []promql.FPoint, colour string) {
	if len(points) == 0 {
		return
	}
	path := &strings.Builder{}
	for index, point := range points {
		x, y := p.at(point)
		command := "L"
		if index == 0 {
			command = "M"
		}
		fmt.Fprintf(path, "%s%.1f %.1f", command, x, y)
	}
	if len(base) > 0 {
		below := &strings.Builder{}
		for _, point := range slices.Backward(base) {
			x, y := p.at(point)
			fmt.Fprintf(below, "L%.1f %.1f", x, y)
		}
		c.add(`<path d="%s%sZ" fill="%s" fill-opacity="0.3"/>`, path, below, colour)
	}
	c.add(`<path d="%s" fill="none" stroke="%s" stroke-width="1.8" stroke-linejoin="round"/>`, path, colour)
}

// axes draws the grid and returns the room for what is drawn upon it.
func axes(c *canvas, at area, highest float64, unit string, recorded *samples) plot {
	step, ticks := scale(highest)
	if unit == "bytes" {
		step, ticks = scale(highest / mebibyte)
		step *= mebibyte
	}
	p := plot{area{at.x + 46, at.y, at.width - 52, at.height - 38}, recorded.start.UnixMilli(), recorded.end.UnixMilli(), step * float64(ticks)}
	for i := range ticks + 1 {
		value := step * float64(i)
		_, y := p.at(promql.FPoint{F: value})
		c.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`, p.x, y, p.right(), y, grid)
		c.text(p.x-6, y+4, 11, faint, "end", "400", write(value, unit))
	}
	timeAxis(c, p, recorded)
	return p
}

// timeAxis writes the minutes since the beginning.
func timeAxis(c *canvas, p plot, recorded *samples) {
	every := time.Minute
	for recorded.end.Sub(recorded.start)/every > 5 {
		every += time.Minute
	}
	for offset := time.Duration(0); offset <= recorded.end.Sub(recorded.start); offset += every {
		x, _ := p.at(promql.FPoint{T: recorded.start.Add(offset).UnixMilli()})
		c.text(x, p.bottom()+15, 11, faint, "middle", "400", fmt.Sprintf("%d min", int(offset.Minutes())))
	}
}

// scale returns round steps that reach the highest value.
func scale(highest float64) (step float64, ticks int) {
	if highest <= 0 {
		return 1, 1
	}
	raw := highest / 4
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, factor := range []float64{1, 2, 2.5, 5, 10} {
		if step = factor * power; step >= raw {
			break
		}
	}
	return step, int(math.Ceil(highest/step - 1e-9))
}

func drawLegend(c *canvas, at area, lines []line) {
	x := at.x
	for index, l := range lines {
		width := 26 + 6.4*float64(len(l.name))
		if x+width > at.right() && index < len(lines)-1 || x+width > at.right()+10 {
			c.text(x, at.bottom()-2, 11, faint, "start", "400", fmt.Sprintf("and %d more", len(lines)-index))
			return
		}
		c.add(`<rect x="%.1f" y="%.1f" width="12" height="3" fill="%s"/>`, x, at.bottom()-7, palette[index%len(palette)])
		c.text(x+16, at.bottom()-2, 11, ink, "start", "400", l.name)
		x += width
	}
}

// bucket is the pods that took up to some time, at each point.
type bucket struct {
	upTo   float64
	counts map[int64]float64
}

func drawHeatmap(ctx context.Context, c *canvas, at area, panel dashboard.Panel, recorded *samples) error {
	matrix, err := recorded.over(ctx, panel.Targets[0].Expression)
	if err != nil {
		return err
	}
	var buckets []bucket
	for _, series := range matrix {
		upTo, err := strconv.ParseFloat(series.Metric.Get("le"), 64)
		if err != nil {
			return fmt.Errorf("understand a bucket: %w", err)
		}
		b := bucket{upTo, map[int64]float64{}}
		for _, point := range series.Floats {
			b.counts[point.T] = point.F
		}
		buckets = append(buckets, b)
	}
	slices.SortFunc(buckets, func(a, b bucket) int { return cmp.Compare(a.upTo, b.upTo) })
	most := 0.0
	for index := len(buckets) - 1; index > 0; index-- {
		for at, below := range buckets[index-1].counts {
			buckets[index].counts[at] -= below
		}
	}
	for _, b := range buckets {
		for _, count := range b.counts {
			most = max(most, count)
		}
	}
	p := plot{area{at.x + 46, at.y, at.width - 52, at.height - 24}, recorded.start.UnixMilli(), recorded.end.UnixMilli(), float64(max(len(buckets), 1))}
	timeAxis(c, p, recorded)
	cell := p.width / points
	for index, b := range buckets {
		_, top := p.at(promql.FPoint{F: float64(index + 1)})
		height := p.height / p.top
		c.text(p.x-6, top+4, 10, faint, "end", "400", write(b.upTo, panel.Options.YAxis.Unit))
		for _, when := range slices.Sorted(maps.Keys(b.counts)) {
			count := b.counts[when]
			if count < 1e-9 || when+recorded.step().Milliseconds() > p.to {
				continue
			}
			x, _ := p.at(promql.FPoint{T: when})
			c.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#1f60c4" fill-opacity="%.2f"/>`, x, top+0.5, cell+0.2, height-1, 0.1+0.9*math.Sqrt(count/most))
		}
	}
	return nil
}
