// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// charts are the file names of the charts of memory at rest, by what is on their horizontal axis.
var charts = map[Axis]string{AxisUnrelated: "performance-other-pods.svg", AxisCandidates: "performance-candidates.svg"}

// styles are the colors and marks of contenders: marks help readers who cannot tell the colors apart.
var styles = []struct {
	contender Contender
	color     color.Color
	mark      draw.GlyphDrawer
}{
	{ContenderOperator, color.NRGBA{R: 0x09, G: 0x69, B: 0xda, A: 0xff}, draw.CircleGlyph{}},
	{ContenderKruise, color.NRGBA{R: 0xbc, G: 0x4c, B: 0x00, A: 0xff}, draw.TriangleGlyph{}},
	{ContenderKruiseLifted, color.NRGBA{R: 0x82, G: 0x50, B: 0xdf, A: 0xff}, draw.SquareGlyph{}},
}

// memoryChart draws resident memory at rest along an axis as SVG: medians, with bars from the least to the greatest. The same
// results make the same bytes.
func (r *Report) memoryChart(axis Axis) ([]byte, error) {
	chart := plot.New()
	for _, style := range []*font.Font{
		&chart.Legend.TextStyle.Font, &chart.X.Label.TextStyle.Font, &chart.Y.Label.TextStyle.Font,
		&chart.X.Tick.Label.Font, &chart.Y.Tick.Label.Font,
	} {
		style.Variant = "Sans"
	}
	chart.X.Label.Text, chart.Y.Label.Text = axes[axis], "resident memory, MiB"
	chart.Legend.Top, chart.Legend.Left, chart.Legend.Padding = true, true, 2
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 0xe4}, color.Gray{Y: 0xe4}
	chart.Add(grid)
	for i, style := range styles {
		along := r.growth(style.contender, axis)
		along = slices.DeleteFunc(along, func(growth *Growth) bool { return len(measured(growth.Runs, rssOf)) == 0 })
		if len(along) == 0 {
			continue
		}
		if err := addSeries(chart, i, along); err != nil {
			return nil, fmt.Errorf("draw %s: %w", style.contender, err)
		}
	}
	chart.X.Min, chart.Y.Min = 0, 0
	// Leaves room for the legend above the lines.
	chart.Y.Max *= 1.3
	return svg(chart)
}

func addSeries(chart *plot.Plot, number int, along []*Growth) error {
	medians, ranges := make(plotter.XYs, len(along)), make(plotter.YErrors, len(along))
	for i, growth := range along {
		rss := spreadOf(measured(growth.Runs, rssOf))
		medians[i] = plotter.XY{X: float64(growth.Count), Y: rss.median}
		ranges[i].Low, ranges[i].High = rss.median-rss.least, rss.greatest-rss.median
	}
	line, points, err := plotter.NewLinePoints(medians)
	if err != nil {
		return err
	}
	bars, err := plotter.NewYErrorBars(struct {
		plotter.XYs
		plotter.YErrors
	}{medians, ranges})
	if err != nil {
		return err
	}
	style := styles[number]
	line.Color, points.Color, bars.Color = style.color, style.color, style.color
	line.Width, bars.Width = 1.5, 1
	points.Shape, points.Radius = style.mark, 3
	chart.Add(line, bars, points)
	chart.Legend.Add(string(style.contender), line, points)
	return nil
}

// svg draws a chart on white, so that it can be read on a dark page as well.
func svg(chart *plot.Plot) ([]byte, error) {
	const margin = vg.Length(12)
	canvas := vgsvg.New(5*vg.Inch, 3.6*vg.Inch)
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Path())
	chart.Draw(draw.Crop(whole, margin, -margin, margin, -margin))
	var picture bytes.Buffer
	if _, err := canvas.WriteTo(&picture); err != nil {
		return nil, fmt.Errorf("write SVG: %w", err)
	}
	// Arial and Helvetica are as wide as Liberation Sans, which few readers have.
	return bytes.ReplaceAll(picture.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans, Arial, Helvetica, sans-serif;")), nil
}
