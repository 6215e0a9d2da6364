"""A plan as SVG: time from left to right, addresses from bottom to top."""

from __future__ import annotations

from zlib import crc32

from npuc.schedule.memory.model import MemoryPlan

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 960.0, 540.0, 90.0, 30.0, 30.0


def plan_svg(plan: MemoryPlan) -> str:
    """SVG that needs nothing else. The title of a rectangle has the buffer's name, address, size and lifetime."""
    from html import escape  # its tables of letters would be loaded with every compilation

    first = min((b.start for b in plan.buffers), default=0)
    last = max((b.end for b in plan.buffers), default=1)
    high = max(plan.size, 1)
    x_scale, y_scale = _WIDTH / max(last - first, 1), _HEIGHT / high
    total_w, total_h = _LEFT + _WIDTH + 20, _TOP + _HEIGHT + _BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total_w:g}" height="{total_h:g}"'
        f' viewBox="0 0 {total_w:g} {total_h:g}" font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT:g}" y="18">{escape(_headline(plan))}</text>',
    ]
    for b in plan.buffers:
        at = plan.addresses[b.name]
        x, width = _LEFT + (b.start - first) * x_scale, (b.end - b.start) * x_scale
        y, height = _TOP + _HEIGHT - (at + b.size) * y_scale, b.size * y_scale
        title = f"{_printable(b.name)}: {b.size:,} bytes at {at:,}, alive in [{b.start}, {b.end})"
        lines.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" fill="{_colour(b.name)}"'
            f' fill-opacity="0.8" stroke="#333" stroke-width="0.4"><title>{escape(title)}</title></rect>'
        )
    for value, label in ((0, "0"), (plan.lower_bound, "bound"), (plan.size, f"{plan.size:,}")):
        y = _TOP + _HEIGHT - value * y_scale
        dash = ' stroke-dasharray="4 3"' if label == "bound" else ""
        if label == "bound" and plan.lower_bound == plan.size:
            continue
        lines.append(
            f'<line x1="{_LEFT:g}" x2="{_LEFT + _WIDTH:g}" y1="{y:.2f}" y2="{y:.2f}" stroke="#c00"{dash}/>'
            f'<text x="{_LEFT - 6:g}" y="{y + 4:.2f}" text-anchor="end">{label}</text>'
        )
    base = _TOP + _HEIGHT + 18
    lines.append(f'<text x="{_LEFT:g}" y="{base:g}">{first}</text>')
    lines.append(f'<text x="{_LEFT + _WIDTH:g}" y="{base:g}" text-anchor="end">{last}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _headline(plan: MemoryPlan) -> str:
    proof = "proven the smallest" if plan.proven else f"lower bound {plan.lower_bound:,}"
    return f"{len(plan.buffers):,} buffers in {plan.size:,} bytes ({proof}; {plan.method})"


def _printable(name: str) -> str:
    return "".join(c if c.isprintable() else "�" for c in name)


def _colour(name: str) -> str:
    import colorsys

    hue = crc32(name.encode("utf-8", "surrogatepass")) % 360 / 360
    red, green, blue = colorsys.hls_to_rgb(hue, 0.7, 0.6)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
