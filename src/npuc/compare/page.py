"""A page that compares two runs of a network, tensor by tensor: one HTML file without anything outside of it.

The upper part has a dot a tensor, by cosine; a click shows the tensor's values in both runs, its histogram and its row in the
table of all figures. Long tensors are sampled evenly. A tensor that only one of the runs has is marked NA, never perfect.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.compare.tensors import difference

_POINTS = 400
_BINS = 64


@dataclass(frozen=True)
class ComparedLayer:
    """A tensor of the run that is looked at, and what the page says of its layer."""

    name: str
    kind: str
    """The op that makes it."""
    attributes: str = ""


def comparison_page(
    title: str,
    layers: list[ComparedLayer],
    values: Mapping[str, Array],
    reference: Mapping[str, Array],
    notes: Mapping[str, str],
) -> str:
    """The page of a run against a reference; `notes` are lines for its head, such as the names of files."""
    records = [
        _record(layer, values[layer.name], reference.get(layer.name))
        for layer in layers
        if layer.name in values
    ]
    head = "".join(f"<div><b>{escape(key)}</b> {escape(text)}</div>" for key, text in notes.items())
    data = json.dumps(records, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return _PAGE.replace("@TITLE@", escape(title)).replace("@HEAD@", head).replace("@DATA@", data)


def _record(layer: ComparedLayer, values: Array, reference: Array | None) -> dict[str, Any]:
    """A tensor as plain data."""
    record: dict[str, Any] = {
        "name": layer.name,
        "kind": layer.kind,
        "attributes": layer.attributes,
        "shape": "x".join(map(str, values.shape)),
        "a": _sampled(values),
    }
    if reference is None:
        return record | {"cosine": None}
    figures = difference(layer.name, values, reference)
    low, high = (float(end) for end in _ends(values, reference))
    return record | {
        "cosine": round(figures.cosine, 6),
        "euclid": round(figures.euclid, 6),
        "sqnr": round(figures.sqnr, 2) if np.isfinite(figures.sqnr) else str(figures.sqnr),
        "error": float(f"{figures.max_error:.6g}") if np.isfinite(figures.max_error) else "inf",
        "b": _sampled(reference),
        "histograms": [_histogram(array, low, high) for array in (values, reference)],
        "low": low,
        "high": high,
    }


def _ends(*arrays: Array) -> tuple[float, float]:
    finite = [array[np.isfinite(array)] for array in (np.asarray(a, np.float64).reshape(-1) for a in arrays)]
    joined = np.concatenate(finite) if any(part.size for part in finite) else np.zeros(1)
    return float(joined.min()), float(joined.max())


def _sampled(array: Array) -> list[float]:
    flat = np.nan_to_num(np.asarray(array, np.float64).reshape(-1), posinf=0.0, neginf=0.0)
    step = max(1, -(-flat.size // _POINTS))
    return [float(f"{value:.5g}") for value in flat[::step]]


def _histogram(array: Array, low: float, high: float) -> list[int]:
    flat = np.asarray(array, np.float64).reshape(-1)
    counts, _ = np.histogram(
        flat[np.isfinite(flat)], bins=_BINS, range=(low, high if high > low else low + 1)
    )
    return [int(count) for count in counts]


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>@TITLE@</title>
<style>
body{font:14px system-ui,sans-serif;margin:1em;max-width:1200px} svg{border:1px solid #ccc;width:100%} circle{cursor:pointer}
table{border-collapse:collapse;width:100%} td,th{padding:2px 8px;text-align:right;border-bottom:1px solid #eee}
td:first-child,th:first-child,td:nth-child(2){text-align:left} tr{cursor:pointer} tr.on{background:#def} .na{color:#888}
#list{max-height:24em;overflow:auto} .a{stroke:#c33;fill:none} .b{stroke:#36c;fill:none} #plots{display:flex;gap:1em}
</style></head><body><h1>@TITLE@</h1>@HEAD@
<h2>Cosine of each tensor</h2><svg id="summary" viewBox="0 0 1000 160"></svg>
<h2 id="name">Click a dot or a row</h2><div id="layer"></div>
<div>red: this run, blue: the reference</div><div id="plots"><svg id="curve" viewBox="0 0 600 220"></svg>
<svg id="bins" viewBox="0 0 600 220"></svg></div>
<h2>All tensors</h2><div id="list"><table><thead><tr><th>tensor</th><th>op</th><th>shape</th><th>cosine</th><th>euclid</th>
<th>SQNR dB</th><th>largest error</th></tr></thead><tbody></tbody></table></div>
<script>
const data=@DATA@;
const svg=(n,a)=>{const e=document.createElementNS("http://www.w3.org/2000/svg",n);
 for(const k in a)e.setAttribute(k,a[k]);return e};
const rows=[];
function line(to,v,low,high,w,h,c){const n=v.length,s=high>low?high-low:1;
 const at=(y,i)=>(i*w/Math.max(1,n-1)).toFixed(1)+","+(h-(y-low)/s*h).toFixed(1);
 to.append(svg("polyline",{class:c,points:v.map(at).join(" ")}))}
function show(i){const t=data[i];rows.forEach((r,k)=>r.classList.toggle("on",k==i));rows[i].scrollIntoView({block:"nearest"});
 document.getElementById("name").textContent=t.name;
 document.getElementById("layer").textContent=t.kind+" "+t.shape+" "+t.attributes;
 const curve=document.getElementById("curve"),bins=document.getElementById("bins");curve.replaceChildren();bins.replaceChildren();
 const all=t.a.concat(t.b||[]),low=Math.min(...all),high=Math.max(...all);
 line(curve,t.a,low,high,600,220,"a");if(t.b)line(curve,t.b,low,high,600,220,"b");
 if(t.histograms){const m=Math.max(1,...t.histograms[0],...t.histograms[1]);
  t.histograms.forEach((v,k)=>line(bins,v.map(x=>Math.log1p(x)),0,Math.log1p(m),600,220,k?"b":"a"))}}
const summary=document.getElementById("summary"),body=document.querySelector("tbody");
const least=Math.min(0.99,...data.filter(t=>t.cosine!==null).map(t=>t.cosine));
data.forEach((t,i)=>{const x=10+980*i/Math.max(1,data.length-1),na=t.cosine===null,y=na?155:10+140*(1-t.cosine)/(1-least);
 const dot=svg("circle",{cx:x,cy:y,r:4,fill:na?"#aaa":t.cosine<0.9?"#c33":t.cosine<0.99?"#e90":"#393"});
 dot.append(svg("title",{}));dot.firstChild.textContent=t.name+" "+(na?"NA":t.cosine);dot.onclick=()=>show(i);summary.append(dot);
 const r=document.createElement("tr");for(const v of [t.name,t.kind,t.shape,na?"NA":t.cosine,t.euclid,t.sqnr,t.error])
 {const c=document.createElement("td");c.textContent=v===undefined?"NA":v;if(na)c.className="na";r.append(c)}
 r.onclick=()=>show(i);body.append(r);rows.push(r)});
if(data.length)show(0);
</script></body></html>
"""
