// One image through several models: what each is given, and what it says, as classes or as boxes in the image.
const DECODERS = ["", "yolox", "yolov8", "yolov11", "yolov6", "yolov5", "yolov4", "yolov3", "yolov3_tiny", "yolov2", "fastestdet", "ssd", "rows", "rows8"];
// Choices of this view, which outlive it: models, preprocessing, decoding, the least score that is drawn.
const pictured = {models: null, prepare: {}, recipe: "", decode: "", options: "", labels: "", score: 0.3};
const modelFiles = () => state.project.files.filter(file => ["model", "network", "program"].includes(file.kind));
const numbersOf = text => text.split(/[\s,;]+/).filter(word => word).map(Number);

// A file that is dropped on the page or chosen here goes into the project.
async function upload(file) {
  const answer = await ask("upload", {name: file.name}, file);
  await refresh();
  return answer.file;
}
function fileButton(words, done) {
  if (embedded) return "";
  const input = element("input", {type: "file", class: "hidden-input", tabindex: "-1", "aria-hidden": "true", accept: ".png,.jpg,.jpeg,.bmp,.webp,.npz,.npy", onchange: () => attempt(async () => done(await upload(input.files[0])))});
  return element("span", {}, element("button", {type: "button", onclick: () => input.click()}, words), input);
}

async function pictureView(place) {
  const images = state.project.files.filter(file => file.kind === "image");
  if (!images.length) {
    place.append(element("div", {class: "empty"}, element("p", {}, "Drop an image on this page to see what the models make of it."), fileButton("Choose an image", name => change({sample: name, tab: "picture"}))));
    return;
  }
  const image = images.some(file => file.name === state.sample) ? state.sample : images[0].name;
  const models = (pictured.models || [state.b, state.a]).filter((name, i, all) => name && all.indexOf(name) === i && modelFiles().some(file => file.name === name));
  if (!models.length) models.push(state.a);
  const answerPlace = element("div", {class: "pictures"});
  const again = () => show(answerPlace, image, models);
  const choice = element("select", {id: "picture-image", onchange: () => change({sample: choice.value, tab: "picture"})}, ...images.map(file => element("option", {value: file.name}, file.name)));
  choice.value = image;
  place.append(element("div", {class: "split"}, element("h2", {}, "What the models see and say"),
    element("div", {class: "tools"}, element("label", {}, "Image ", choice), fileButton("Add an image", name => change({sample: name, tab: "picture"})))), pictureChoices(models, again), answerPlace);
  await again();
}

function pictureChoices(models, again) {
  if (embedded) return element("div", {class: "card form"}, scoreChoice(again));
  const boxes = modelFiles().slice(0, 30).map(file => {
    const box = element("input", {type: "checkbox", value: file.name, onchange: () => {
      const chosen = [...models.filter(name => name !== file.name), ...(box.checked ? [file.name] : [])];
      if (!chosen.length || chosen.length > 4) { box.checked = !box.checked; say("An image is shown to one to four models at once.", true); return; }
      models.splice(0, models.length, ...chosen);
      pictured.models = [...models];
      again();
    }});
    box.checked = models.includes(file.name);
    return element("label", {class: "check"}, box, " " + cut(file.name, 40));
  });
  const select = (id, words, options, key) => {
    const list = element("select", {id, onchange: () => { pictured[key] = list.value; again(); }}, ...options.map(([value, text]) => element("option", {value}, text)));
    list.value = pictured[key];
    return element("label", {}, words + " ", list);
  };
  const named = kind => state.project.files.filter(file => file.kind === kind).map(file => [file.name, file.name]);
  const options = element("input", {id: "picture-options", class: "short", value: pictured.options, placeholder: "activated=1", onchange: () => { pictured.options = options.value.replace(/\s+/g, ""); again(); }});
  const field = (id, words, key, hint, read = numbersOf) => {
    const input = element("input", {id, class: "short", placeholder: hint, onchange: () => {
      const value = read(input.value);
      if (!input.value.trim()) delete pictured.prepare[key]; else pictured.prepare[key] = value;
      again();
    }});
    if (pictured.prepare[key] !== undefined) input.value = String(pictured.prepare[key]);
    return element("label", {}, words + " ", input);
  };
  const picked = (id, words, key, options) => {
    const list = element("select", {id, onchange: () => { if (list.value) pictured.prepare[key] = options[list.value]; else delete pictured.prepare[key]; again(); }}, element("option", {value: ""}, "as the model says"), ...Object.keys(options).map(word => element("option", {value: word}, word)));
    list.value = Object.keys(options).find(word => options[word] === pictured.prepare[key]) || "";
    return element("label", {}, words + " ", list);
  };
  return element("div", {class: "card"},
    element("fieldset", {class: "checks"}, element("legend", {}, "Models; the first is what the others are held against"), ...boxes),
    element("div", {class: "form"}, select("picture-decode", "Outputs", DECODERS.map(word => [word, word || "classes, or boxes from inside"]), "decode"), element("label", {}, "with ", options), select("picture-labels", "Names of classes", [["", "none"], ...named("labels")], "labels"), scoreChoice(again)),
    element("details", {id: "picture-prepare", open: Object.keys(pictured.prepare).length > 0}, element("summary", {}, "Preprocessing"),
      element("div", {class: "form"}, picked("picture-format", "Channels", "pixel_format", {rgb: "rgb", bgr: "bgr", gray: "gray"}), picked("picture-aspect", "Aspect ratio", "keep_aspect_ratio", {kept: true, stretched: false}), picked("picture-pad", "Padding", "pad_type", {"on all sides": "center", "right and below": "corner"}),
        field("picture-fill", "Filled with", "pad_value", "0", Number), field("picture-resize", "Resize to", "resize", "256, 256"), field("picture-mean", "Mean", "mean", "123.7, 116.3, 103.5"), field("picture-scale", "Scale", "scale", "0.0171, 0.0175, 0.0174"),
        select("picture-recipe", "or a recipe", [["", "none"], ...named("configuration")], "recipe"))));
}
function scoreChoice() {
  const shown = element("output", {class: "figure"}, pictured.score.toFixed(2));
  const slider = element("input", {id: "picture-score", type: "range", min: 0.05, max: 0.95, step: 0.05, value: pictured.score, "aria-label": "Least score that is drawn", oninput: () => { pictured.score = Number(slider.value); shown.textContent = pictured.score.toFixed(2); for (const card of document.querySelectorAll(".pictures .card")) if (card.redraw) card.redraw(); }});
  return element("label", {}, "Least score ", slider, shown);
}

function show(place, image, models) {
  return attempt(async () => {
    place.replaceChildren(element("p", {class: "soft"}, "Running " + models.length + (models.length > 1 ? " models…" : " model…")));
    const prepare = Object.keys(pictured.prepare).length ? JSON.stringify(pictured.prepare) : "";
    const answer = await ask("picture", {file: image, models: JSON.stringify(models), prepare, recipe: pictured.recipe, decode: pictured.decode && pictured.decode + (pictured.options ? ":" + pictured.options : ""), labels: pictured.labels});
    if (!place.isConnected) return;
    say("");
    const photo = new Image();
    photo.src = answer.picture;
    await photo.decode();
    const first = answer.models[0];
    place.replaceChildren(...answer.notes.map(note => element("p", {class: "soft note"}, note)), element("div", {class: "picture-row"}, ...answer.models.map(model => modelCard(model, first, photo, answer))));
    view.dataset.pictured = image;
  });
}

function modelCard(model, first, photo, answer) {
  const verdict = element("p", {class: "verdict"}), card = element("section", {class: "card picture-card", "aria-label": model.model}, element("h3", {}, cut(model.model, 44), element("span", {class: "soft"}, model.form)));
  if (model.boxes) {
    const colours = classColours(answer.models), canvas = element("canvas", {class: "photo", role: "img"}), list = element("ul", {class: "found"});
    card.append(verdict, canvas, list);
    card.redraw = () => {
      const shown = model.boxes.filter(box => box.score >= pictured.score);
      drawBoxes(canvas, photo, answer, shown, colours);
      canvas.setAttribute("aria-label", shown.length + " boxes: " + shown.slice(0, 20).map(nameOf).join(", "));
      verdict.textContent = model === first ? shown.length + (shown.length === 1 ? " object" : " objects") : agreement(first.boxes || [], shown, model);
      list.replaceChildren(...shown.slice(0, 8).map(box => element("li", {}, dot(colours.get(box.class)), element("span", {class: "grow"}, nameOf(box)), element("span", {class: "figure"}, share(box.score)))),
        ...(shown.length > 8 ? [element("li", {class: "soft"}, shown.length - 8 + " more")] : []));
    };
    new ResizeObserver(() => card.redraw()).observe(card);
  } else if (model.best) {
    const same = first.best && first.best[0].class === model.best[0].class;
    verdict.textContent = model === first ? "best of " + count(model.classes) + " classes" : (same ? "the same class as " : "another class than ") + cut(first.model, 30) + worstWords(model);
    verdict.classList.toggle("differs", model !== first && !same);
    card.append(verdict, element("img", {class: "photo", src: answer.picture, alt: "The image"}), element("ol", {class: "found"}, ...model.best.map(one => {
      const bar = element("i");
      bar.style.width = 100 * Math.min(1, Number(one.score) || 0) + "%";
      return element("li", {title: "output " + one.value}, element("span", {class: "grow"}, nameOf(one)), element("span", {class: "bar"}, bar), element("span", {class: "figure"}, share(Number(one.score))));
    })));
  } else {
    verdict.textContent = "Its outputs (" + Object.entries(model.shapes).map(([name, shape]) => name + " " + shape).join(", ") + ") are no list of classes: choose under ‘Outputs’ how they become boxes." + worstWords(model);
    card.append(verdict, element("img", {class: "photo", src: answer.picture, alt: "The image"}));
  }
  const given = element("div", {class: "given"}, element("h4", {}, "What it is given"));
  if (model.input.picture) given.append(element("img", {class: "prepared", src: model.input.picture, alt: "The input of " + model.model}));
  given.append(element("ol", {class: "steps"}, ...model.input.steps.map(step => element("li", {}, step))));
  if (model.input.flags) given.append(element("code", {}, model.input.flags));
  card.append(given);
  return card;
}
const nameOf = one => one.label ? one.label : "class " + one.class;
const worstWords = model => model.sqnr === undefined ? "" : "; " + decibel(model.sqnr) + " dB" + (model.worst ? " at " + cut(model.worst, 24) : "");
// Classes that are found in an image get colours in the order of their scores: neighbours in a list of names often occur together.
function classColours(models) {
  const found = models.flatMap(model => model.boxes || []).sort((a, b) => b.score - a.score);
  return categories([...new Set(found.map(box => box.class))]);
}
function dot(colour) {
  const mark = element("i", {class: "dot"});
  mark.style.background = rgb(colour);
  return mark;
}
function drawBoxes(canvas, photo, answer, boxes, colours) {
  const width = canvas.parentElement.clientWidth - 34, factor = Math.min(width / answer.width, 460 / answer.height);
  canvas.style.width = answer.width * factor + "px";
  const pen = crisp(canvas, answer.width * factor, answer.height * factor);
  pen.drawImage(photo, 0, 0, answer.width * factor, answer.height * factor);
  pen.font = "600 11px system-ui, sans-serif";
  // The best on top.
  for (const {box, score, ...one} of [...boxes].reverse()) {
    const [x, y, right, bottom] = box.map(side => side * factor), colour = colours.get(one.class), words = nameOf(one) + " " + Math.round(100 * score) + "%";
    pen.lineWidth = 4; pen.strokeStyle = "rgba(0,0,0,.55)"; pen.strokeRect(x, y, right - x, bottom - y);
    pen.lineWidth = 2; pen.strokeStyle = rgb(colour); pen.strokeRect(x, y, right - x, bottom - y);
    const wide = pen.measureText(words).width + 8, top = Math.max(0, y - 15), left = Math.max(0, Math.min(x, answer.width * factor - wide));
    pen.fillStyle = rgb(colour); pen.fillRect(left, top, wide, 15);
    pen.fillStyle = inkOn(colour); pen.fillText(words, left + 4, top + 11);
  }
}
// How many of the boxes of the first model another one has too: the same class, and more than half of the area in common.
function agreement(expected, shown, model) {
  const wanted = expected.filter(box => box.score >= pictured.score), free = new Set(shown);
  let same = 0;
  for (const box of wanted) {
    const match = [...free].find(other => other.class === box.class && overlap(box.box, other.box) > 0.5);
    if (match) { same += 1; free.delete(match); }
  }
  return same + " of " + wanted.length + " objects found, " + free.size + " that the first has not" + worstWords(model);
}
function overlap(a, b) {
  const wide = Math.min(a[2], b[2]) - Math.max(a[0], b[0]), tall = Math.min(a[3], b[3]) - Math.max(a[1], b[1]);
  if (wide <= 0 || tall <= 0) return 0;
  const area = box => (box[2] - box[0]) * (box[3] - box[1]);
  return wide * tall / (area(a) + area(b) - wide * tall);
}
