// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	panelWidth = 5 * vg.Inch
	height     = 3.6 * vg.Inch
	margin     = vg.Length(12)
)

// colours and marks tell series apart, the marks also for those who see no difference between the colours.
var (
	colours = []color.Color{
		color.NRGBA{R: 0x09, G: 0x69, B: 0xda, A: 0xff}, color.NRGBA{R: 0xbc, G: 0x4c, B: 0x00, A: 0xff},
		color.NRGBA{R: 0x82, G: 0x50, B: 0xdf, A: 0xff}, color.NRGBA{R: 0x1a, G: 0x7f, B: 0x37, A: 0xff},
	}
	marks = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.TriangleGlyph{}, draw.SquareGlyph{}, draw.PyramidGlyph{}}
)

// draw returns the picture. Its background is white, so that it can be read on a dark page as well.
func (c Chart) draw() ([]byte, error) {
	row := make([]*plot.Plot, len(c.Panels))
	for i, panel := range c.Panels {
		drawn, err := panel.plot()
		if err != nil {
			return nil, err
		}
		row[i] = drawn
	}
	width := panelWidth * vg.Length(len(row))
	canvas := vgsvg.New(width, height)
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Path())
	tiles := draw.Tiles{
		Rows: 1, Cols: len(row), PadTop: margin, PadBottom: margin, PadLeft: margin, PadRight: margin, PadX: 2 * margin,
	}
	for i, area := range plot.Align([][]*plot.Plot{row}, tiles, whole)[0] {
		row[i].Draw(area)
	}
	var picture bytes.Buffer
	if _, err := canvas.WriteTo(&picture); err != nil {
		return nil, fmt.Errorf("write SVG: %w", err)
	}
	// Arial and Helvetica have the same widths, for those who do not have the typeface that the places are computed for.
	return bytes.ReplaceAll(picture.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans, Arial, Helvetica, sans-serif;")), nil
}

// plot puts the series of the panel on its axes.
func (p Panel) plot() (*plot.Plot, error) {
	drawn := plot.New()
	sansSerif(drawn)
	drawn.Title.Text = p.Title
	drawn.Title.Padding = 6
	drawn.X.Label.Text, drawn.Y.Label.Text = p.X.Label, p.Y.Label
	drawn.X.Tick.Marker, drawn.Y.Tick.Marker = grouped{plot.DefaultTicks{}}, grouped{plot.DefaultTicks{}}
	if p.X.Logarithmic {
		drawn.X.Scale = plot.LogScale{}
		drawn.X.Tick.Marker = grouped{plot.LogTicks{Prec: -1}}
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 0xe4}, color.Gray{Y: 0xe4}
	drawn.Add(grid)
	drawn.Legend.Top, drawn.Legend.Left = true, true
	drawn.Legend.Padding = 2
	for _, series := range p.Series {
		if err := series.add(drawn); err != nil {
			return nil, fmt.Errorf("series %s: %w", series.Name, err)
		}
	}
	// Above the lines is room for the names of the series.
	drawn.Y.Min = 0
	if !p.X.Logarithmic {
		drawn.X.Min = 0
	}
	drawn.Y.Max *= 1.1 + 0.08*float64(len(p.Series))
	if drawn.Y.Max == 0 {
		drawn.Y.Max = 1
	}
	return drawn, nil
}

// add puts a line with marks and bars into the panel.
func (s Series) add(drawn *plot.Plot) error {
	medians := make(plotter.XYs, len(s.Points))
	ranges := make(plotter.YErrors, len(s.Points))
	for i, point := range s.Points {
		medians[i] = plotter.XY{X: point.X, Y: point.Median}
		ranges[i].Low, ranges[i].High = point.Median-point.Least, point.Greatest-point.Median
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
	colour := colours[s.Place%len(colours)]
	line.Color, points.Color, bars.Color = colour, colour, colour
	line.Width, bars.Width = 1.5, 1
	points.Shape, points.Radius = marks[s.Place%len(marks)], 3
	drawn.Add(line, bars, points)
	drawn.Legend.Add(s.Name, line, points)
	return nil
}

// sansSerif gives all text of the panel the typeface of the pages around it.
func sansSerif(drawn *plot.Plot) {
	for _, style := range []*font.Font{
		&drawn.Title.TextStyle.Font, &drawn.Legend.TextStyle.Font, &drawn.X.Label.TextStyle.Font, &drawn.Y.Label.TextStyle.Font,
		&drawn.X.Tick.Label.Font, &drawn.Y.Tick.Label.Font,
	} {
		style.Variant = "Sans"
	}
	drawn.Title.TextStyle.Font.Size = 13
}

// grouped writes ticks with their digits grouped by thousands.
type grouped struct{ plot.Ticker }

func (g grouped) Ticks(least, greatest float64) []plot.Tick {
	ticks := g.Ticker.Ticks(least, greatest)
	for i, tick := range ticks {
		if tick.Label != "" {
			ticks[i].Label = thousands(tick.Value)
		}
	}
	return ticks
}

// thousands writes a number as short as it is, and a whole one of more than three digits with commas.
func thousands(value float64) string {
	// Ticks are sums of steps, and may miss their value by the last digit.
	value = math.Round(value*1e6) / 1e6
	digits := strconv.FormatFloat(value, 'f', -1, 64)
	if value < 1000 || value != math.Trunc(value) {
		return digits
	}
	var parts []string
	for len(digits) > 3 {
		parts = append([]string{digits[len(digits)-3:]}, parts...)
		digits = digits[:len(digits)-3]
	}
	return strings.Join(append([]string{digits}, parts...), ",")
}
