"""Small models of three families of transformers' image-text models, saved in a folder."""

from tokenizers import AddedToken, Tokenizer
from transformers import (
    CLIPVisionConfig,
    GemmaConfig,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3Processor,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PaliGemmaConfig,
    PaliGemmaForConditionalGeneration,
    PaliGemmaProcessor,
    PreTrainedTokenizerFast,
    SiglipVisionConfig,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from fedpriv.models.readers.subwords import Subwords

MARKS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
TEXT = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256, "pad_token_id": 1,
    "bos_token_id": 0, "eos_token_id": 2, "initializer_range": 0.1,
}  # fmt: skip
VISION = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
CHAT = (
    "{% for m in messages %}USER: {% for c in m.content %}{% if c.type == 'image' %}<image>"
    "{% else %}{{ c.text }}{% endif %}{% endfor %}{% endfor %} ASSISTANT: "
)


def words(*more):
    """The shipped tokenizer with a mark for images, as transformers has tokenizers."""
    tokenizer = Tokenizer.from_str(Subwords.shipped().tokenizer.to_str())
    tokenizer.add_special_tokens([AddedToken(m, normalized=False) for m in ("<image>", *more)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, extra_special_tokens={"image_token": "<image>"}, **MARKS
    )


def llava(folder):
    tokenizer = words()
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**VISION, projection_dim=32),
        text_config=LlamaConfig(**TEXT, vocab_size=len(tokenizer)),
        image_token_index=len(tokenizer) - 1,
        vision_feature_layer=-1,
    )
    image_processor = CLIPImageProcessorPil(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
    )
    LlavaForConditionalGeneration(config).save_pretrained(folder)
    LlavaProcessor(
        image_processor,
        tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT,
    ).save_pretrained(folder)


def paligemma(folder):
    tokenizer = words()
    image_processor = SiglipImageProcessorPil(size={"height": 32, "width": 32})
    image_processor.image_seq_length = 16
    # It adds a thousand tokens for places and segments.
    processor = PaliGemmaProcessor(image_processor, tokenizer)
    config = PaliGemmaConfig(
        vision_config=SiglipVisionConfig(**VISION, vision_use_head=False),
        text_config=GemmaConfig(**TEXT, vocab_size=len(processor.tokenizer)),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        projection_dim=32,
    )
    PaliGemmaForConditionalGeneration(config).save_pretrained(folder)
    processor.save_pretrained(folder)


def idefics3(folder):
    tokenizer = words("<fake_token_around_image>", "<end_of_utterance>", "<global-img>")
    image_processor = Idefics3ImageProcessorPil(
        size={"longest_edge": 32}, max_image_size={"longest_edge": 32}, do_image_splitting=False
    )
    processor = Idefics3Processor(image_processor, tokenizer, image_seq_len=4)
    config = Idefics3Config(
        vision_config=VISION,
        text_config=LlamaConfig(**TEXT, vocab_size=len(tokenizer)),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=1,
    )
    Idefics3ForConditionalGeneration(config).save_pretrained(folder)
    processor.save_pretrained(folder)


FAMILIES = {"llava": llava, "paligemma": paligemma, "idefics3": idefics3}
