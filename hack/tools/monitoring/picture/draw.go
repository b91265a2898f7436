// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"html"
	"regexp"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/sidecar-termination/operator/hack/tools/monitoring/dashboard"
)

// Sizes in pixels. A dashboard has 24 columns.
const (
	columns    = 24
	unitWidth  = 62
	unitHeight = 30
	gap        = 8
	header     = 56
	margin     = 12
)

// Colours of lines, in order, and of everything else.
var palette = []string{"#3274d9", "#e0752d", "#37872d", "#a352cc", "#c4162a", "#b5930a", "#0f7d8c", "#8a6d5b"}

var named = map[string]string{"green": "#37872d", "orange": "#e0752d", "red": "#c4162a", "blue": "#3274d9"}

const (
	ink   = "#24292e"
	faint = "#6b7280"
	grid  = "#e5e7eb"
)

// canvas collects the elements of an SVG.
type canvas struct{ strings.Builder }

func (c *canvas) add(format string, arguments ...any) { fmt.Fprintf(c, format+"\n", arguments...) }

// text writes a text. The anchor is start, middle or end.
func (c *canvas) text(x, y float64, size int, colour, anchor, weight, text string) {
	c.add(`<text x="%.1f" y="%.1f" font-size="%d" fill="%s" text-anchor="%s" font-weight="%s">%s</text>`,
		x, y, size, colour, anchor, weight, html.EscapeString(text))
}

// area is a rectangle.
type area struct{ x, y, width, height float64 }

func (a area) right() float64  { return a.x + a.width }
func (a area) bottom() float64 { return a.y + a.height }

// draw returns the dashboard as an SVG.
func draw(ctx context.Context, board *dashboard.Dashboard, recorded *samples) ([]byte, error) {
	rows := 0
	for _, panel := range board.Panels {
		rows = max(rows, panel.Position.Y+panel.Position.Height)
	}
	width, height := columns*unitWidth+2*margin, header+rows*unitHeight+margin
	c := &canvas{}
	c.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="Inter, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif">`,
		width, height, width, height)
	c.add(`<rect width="100%%" height="100%%" fill="#f4f5f5"/>`)
	c.text(margin+4, 35, 20, ink, "start", "600", board.Title)
	c.text(float64(width-margin-4), 35, 13, faint, "end", "400", fmt.Sprintf("%s of a local cluster, one copy", duration(recorded.end.Sub(recorded.start).Seconds())))
	for _, panel := range board.Panels {
		p := panel.Position
		at := area{
			margin + float64(p.X*unitWidth) + gap/2, header + float64(p.Y*unitHeight) + gap/2,
			float64(p.Width*unitWidth) - gap, float64(p.Height*unitHeight) - gap,
		}
		if err := drawPanel(ctx, c, at, panel, recorded); err != nil {
			return nil, fmt.Errorf("draw panel %q: %w", panel.Title, err)
		}
	}
	c.add("</svg>")
	return []byte(c.String()), nil
}

func drawPanel(ctx context.Context, c *canvas, at area, panel dashboard.Panel, recorded *samples) error {
	if panel.Type == "row" {
		c.text(at.x+2, at.bottom()-5, 14, ink, "start", "600", panel.Title)
		return nil
	}
	c.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#ffffff" stroke="%s" rx="3"/>`, at.x, at.y, at.width, at.height, grid)
	c.text(at.x+10, at.y+20, 13, ink, "start", "600", panel.Title)
	inner := area{at.x + 10, at.y + 32, at.width - 20, at.height - 40}
	switch panel.Type {
	case "stat":
		return drawNumber(ctx, c, inner, panel, recorded)
	case "timeseries":
		return drawLines(ctx, c, inner, panel, recorded)
	case "heatmap":
		return drawHeatmap(ctx, c, inner, panel, recorded)
	}
	return fmt.Errorf("type %q cannot be drawn", panel.Type)
}

func drawNumber(ctx context.Context, c *canvas, at area, panel dashboard.Panel, recorded *samples) error {
	found, err := recorded.now(ctx, panel.Targets[0].Expression)
	if err != nil {
		return err
	}
	text, colour := "-", ink
	if len(found) == 1 {
		value := found[0].F
		text = write(value, panel.FieldConfig.Defaults.Unit)
		for _, step := range panel.FieldConfig.Defaults.Thresholds.Steps {
			if step.Value == nil || value >= *step.Value {
				colour = named[step.Color]
			}
		}
	}
	c.text(at.x+at.width/2, at.y+at.height/2+14, 38, colour, "middle", "600", text)
	return nil
}

var placeholder = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

// legend is what a series is called.
func legend(format string, series labels.Labels) string {
	return strings.TrimSpace(placeholder.ReplaceAllStringFunc(format, func(match string) string {
		return series.Get(placeholder.FindStringSubmatch(match)[1])
	}))
}
