// The look of a plot. No custom properties, so that converters without them (librsvg, Inkscape) draw it too; what they do not know
// of dark mode leaves the light one.
#pragma once

namespace dormouse::report {

// r0..r7: after Okabe and Ito's colours for all kinds of colour vision, each with enough contrast on its paper.
inline constexpr char kSheetStyle[] = R"(
.dormouse{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","DejaVu Sans",Arial,sans-serif;font-size:12.5px;
  font-variant-numeric:tabular-nums}
.paper{fill:#fff}
.h1{font-size:22px;font-weight:650;fill:#16191d;letter-spacing:-.01em}
.h2{font-size:14px;font-weight:650;fill:#16191d}
.name{font-size:13px;font-weight:600;fill:#16191d}
.cell{fill:#16191d}
.soft{fill:#5d6570}
.tick{font-size:11.5px;fill:#5d6570}
.label{font-size:12px;fill:#454c55}
.strong{font-weight:650;fill:#16191d}
.grid{stroke:#e7e9ec;fill:none}
.axis{stroke:#9aa2ab;fill:none}
.anchor{stroke:#8b939c;stroke-dasharray:5 4;fill:none}
.goal{stroke:#16191d;stroke-width:1.4}
.leader{stroke:#b9bfc6;fill:none}
.line{fill:none;stroke:currentColor;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.train{stroke-width:1.4;stroke-opacity:.6}
.eval{stroke-width:2.2}
.was{stroke-width:1.2;stroke-opacity:.4}
.raw{fill:none;stroke:currentColor;stroke-width:3;stroke-linecap:round;stroke-opacity:.3}
.point{fill:#fff;stroke:currentColor;stroke-width:1.8}
.hair{stroke:currentColor;stroke-width:1;stroke-opacity:.45;stroke-dasharray:2 3;fill:none}
.sign,.lone{fill:currentColor}
.halo{stroke:#fff;stroke-width:4px;stroke-linejoin:round}
.key{color:#5d6570}
.r0{color:#0072b2}.r1{color:#d55e00}.r2{color:#009e73}.r3{color:#b0508f}
.r4{color:#b07d00}.r5{color:#3f9fdc}.r6{color:#7a1f3d}.r7{color:#55606c}
@media (prefers-color-scheme:dark){
.paper{fill:#14171b}
.h1,.h2,.name,.cell{fill:#eceff2}
.soft,.tick{fill:#98a1ac}
.label{fill:#b6bec7}
.strong{fill:#eceff2}
.grid{stroke:#262b31}
.axis{stroke:#5a636e}
.anchor{stroke:#727c87}
.goal{stroke:#eceff2}
.leader{stroke:#4b545e}
.point{fill:#14171b}
.halo{stroke:#14171b}
.key{color:#98a1ac}
.r0{color:#56aeea}.r1{color:#ff8a45}.r2{color:#2ccb9b}.r3{color:#e48fc8}
.r4{color:#e6b93c}.r5{color:#a5d8ff}.r6{color:#e0678c}.r7{color:#c3cad2}
}
)";

inline constexpr char kPageStyle[] = R"(
html{background:#fff}
body{margin:0;overflow-x:auto}
svg{display:block;width:100%;min-width:860px;max-width:1200px;height:auto;margin:0 auto}
@media (prefers-color-scheme:dark){html{background:#14171b}}
)";

}  // namespace dormouse::report
